"""Which checkpoints stay."""

import dataclasses
import math
from collections.abc import Mapping

from tfdist.errors import ConfigError

_MODES = {"min": 1, "max": -1}


@dataclasses.dataclass(frozen=True)
class Retention:
    """Keeps the union of what its rules keep. The newest whole checkpoint always stays.

    Attributes:
        keep_last: how many of the newest, at least 1.
        keep_every: the first at or after each multiple of so many steps, 0 for none.
        keep_best: how many of those with the best `best_metric`; equal ones count as better the earlier they came, and
            those without a number for it do not count.
        best_metric: a name in the checkpoints' metrics.
        best_mode: `min` or `max`: what is better.

    Raises: ConfigError for values that contradict each other or are none of these.
    """

    keep_last: int = 3
    keep_every: int = 0
    keep_best: int = 0
    best_metric: str | None = None
    best_mode: str = "min"

    def __post_init__(self):
        for name, least in (("keep_last", 1), ("keep_every", 0), ("keep_best", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name}={value!r}: it is a whole number, {least} or more. Give for example {least}.")
        if self.best_mode not in _MODES:
            raise ConfigError(f'best_mode={self.best_mode!r}: it is "min" or "max". Give the one that is better.')
        if self.keep_best and not self.best_metric:
            raise ConfigError(
                f'keep_best={self.keep_best} without best_metric: the best are those by a metric. Name it: "val_loss".'
            )

    def surplus(self, metrics: Mapping[int, Mapping[str, float] | None]) -> list[int]:
        """The steps whose checkpoints go.

        Args:
            metrics: of each checkpoint by its step; None for a damaged one, which is kept for nothing, and goes once a
                newer whole one stands.
        """
        whole = sorted(step for step in metrics if metrics[step] is not None)
        kept = {*whole[-self.keep_last :], *self._milestones(whole), *self._best(whole, metrics)}
        newest = max(whole, default=-1)
        return [step for step in sorted(metrics) if step < newest and step not in kept]

    def _milestones(self, whole):
        if not self.keep_every:
            return set()
        first = {step // self.keep_every: step for step in reversed(whole)}
        return {step for multiple, step in first.items() if multiple}

    def _best(self, whole, metrics):
        values = {step: metrics[step].get(self.best_metric, math.nan) for step in whole}
        counted = [step for step in whole if not math.isnan(values[step])]
        return sorted(counted, key=lambda step: _MODES[self.best_mode] * values[step])[: self.keep_best]
