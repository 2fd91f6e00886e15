"""When a checkpoint is due. Values that answer, asked by whoever saves.

    at_step(step, seconds, cost) -> bool    between two steps: whether to save now
    at_epoch(epochs, seconds, cost) -> bool  between two epochs
    next_step(step) -> int | None           the next step at which to ask; None if it does not go by steps

`step` and `epochs` are those of the whole training that are through, `seconds` those since the last save (or since the
start), and `cost` those that a save takes, None before one was measured.
"""

import dataclasses
import math
from collections.abc import Callable

from tfdist.errors import ConfigError

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_RULE = (
    'checkpoints are saved every so many steps or epochs, at least one, or after some time. Write for example "500 '
    'steps", "2 epochs", "10 minutes", or "auto".'
)
_TIME_RULE = 'a time is more than 0 and has a unit. Write for example "30 seconds", "10 minutes" or "6 hours".'
_FIRST_COST = 1.0


@dataclasses.dataclass(frozen=True)
class EverySteps:
    """At each multiple of `steps`."""

    steps: int

    def at_step(self, step: int, seconds: float, cost: float | None) -> bool:
        return step > 0 and step % self.steps == 0

    def at_epoch(self, epochs: int, seconds: float, cost: float | None) -> bool:
        return False

    def next_step(self, step: int) -> int | None:
        return (step // self.steps + 1) * self.steps


@dataclasses.dataclass(frozen=True)
class EveryEpochs:
    """After each multiple of `epochs`."""

    epochs: int

    def at_step(self, step: int, seconds: float, cost: float | None) -> bool:
        return False

    def at_epoch(self, epochs: int, seconds: float, cost: float | None) -> bool:
        return epochs > 0 and epochs % self.epochs == 0

    def next_step(self, step: int) -> int | None:
        return None


@dataclasses.dataclass(frozen=True)
class EverySeconds:
    """Once `every` seconds have gone by since the last save."""

    every: float

    def at_step(self, step: int, seconds: float, cost: float | None) -> bool:
        return seconds >= self.every

    def at_epoch(self, epochs: int, seconds: float, cost: float | None) -> bool:
        return seconds >= self.every

    def next_step(self, step: int) -> int | None:
        return None


@dataclasses.dataclass(frozen=True)
class Auto:
    """As often as costs the least time, where the job is interrupted every `mtbf` seconds on average.

    `mtbf` is that of the whole job: of n machines that fail alone, each every M seconds, it is M / n. Until a save was
    measured it is taken to cost a second.
    """

    mtbf: float

    def at_step(self, step: int, seconds: float, cost: float | None) -> bool:
        return seconds >= young_daly(_FIRST_COST if cost is None else cost, self.mtbf)

    def at_epoch(self, epochs: int, seconds: float, cost: float | None) -> bool:
        return self.at_step(epochs, seconds, cost)

    def next_step(self, step: int) -> int | None:
        return None


Interval = EverySteps | EveryEpochs | EverySeconds | Auto


def young_daly(save_seconds: float, mtbf_seconds: float) -> float:
    """Seconds of training between the end of a save and the next one that cost the least time in all.

    For a save of d seconds and exponentially distributed failures, M seconds apart on average, that is `sqrt(2 d M)` in
    first order (J. W. Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM
    17(9), 1974); here with the higher terms for d < 2 M, and M beyond (J. T. Daly, A higher order estimate of the
    optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22(3), 2006). What a restart costs
    does not matter.
    """
    if save_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = math.sqrt(save_seconds / (2 * mtbf_seconds))
    return math.sqrt(2 * save_seconds * mtbf_seconds) * (1 + ratio / 3 + ratio**2 / 9) - save_seconds


def read_interval(value, mtbf=None) -> Interval:
    """The interval of a text such as `"500 steps"`, `"2 epochs"`, `"10 minutes"` or `"auto"`, or of an interval.

    Args:
        mtbf: mean time between failures of the whole job, for `"auto"`; see `read_seconds`.

    Raises: ConfigError for anything else, and for `"auto"` without `mtbf`.
    """
    if isinstance(value, Interval):
        return value
    if value == "auto":
        return Auto(_read_mtbf(mtbf))
    amount, unit = _split(value)
    make: dict[str, Callable[[int], Interval]] = {"step": EverySteps, "epoch": EveryEpochs}
    if unit in make and amount >= 1 and amount.is_integer():
        return make[unit](int(amount))
    if unit in _SECONDS and amount > 0:
        return EverySeconds(amount * _SECONDS[unit])
    raise ConfigError(f"{value!r}: {_RULE}")


def read_seconds(value) -> float:
    """The seconds of a text such as `"10 minutes"`. Raises: ConfigError for anything else, and for 0."""
    amount, unit = _split(value)
    if unit not in _SECONDS or not amount > 0:
        raise ConfigError(f"{value!r}: {_TIME_RULE}")
    return amount * _SECONDS[unit]


def _read_mtbf(mtbf):
    if mtbf is None:
        raise ConfigError(
            '"auto" without a mean time between failures: the interval follows from it and from what a save costs. '
            'Say how often the whole job is interrupted, for example "6 hours".'
        )
    return read_seconds(mtbf)


def _split(value) -> tuple[float, str]:
    """The amount and the unit in the singular; 0 and what was found for what is not both."""
    amount, _, unit = str(value).strip().partition(" ")
    unit = unit.strip()
    try:
        number = float(amount)
    except ValueError:
        number = 0.0
    return (number if math.isfinite(number) else 0.0), unit.removesuffix("s")
