"""Durations with a unit: `"5 epochs"`, `"500 steps"` or `0`, turned into optimizer steps once."""

import dataclasses

from tfdist.errors import ConfigError

_UNITS = {"epoch": "epochs", "epochs": "epochs", "step": "steps", "steps": "steps"}


@dataclasses.dataclass(frozen=True)
class Duration:
    """`amount` epochs (fractions allowed) or optimizer steps (a whole number)."""

    amount: float
    unit: str

    def __post_init__(self):
        whole = self.unit == "epochs" or float(self.amount).is_integer()
        if self.unit not in ("epochs", "steps") or not 0 <= self.amount < float("inf") or not whole:
            raise ConfigError(f"{self.amount} {self.unit}: {_RULE}")

    def __str__(self):
        return f"{self.amount:g} {self.unit}"

    def steps(self, steps_per_epoch: int) -> int:
        """The duration in optimizer steps, rounded to the nearest."""
        return round(self.amount * steps_per_epoch) if self.unit == "epochs" else int(self.amount)


_RULE = 'a duration is at least 0 and has a unit. Write for example "5 epochs", "500 steps" or 0.'


def read_duration(value) -> Duration:
    """`Duration` of a text such as `"5 epochs"`, of 0, or of a `Duration`.

    Raises: ConfigError for anything else, numbers without a unit included.
    """
    if isinstance(value, Duration):
        return value
    if value == 0 and not isinstance(value, bool):
        return Duration(0, "steps")
    amount, _, unit = str(value).strip().partition(" ")
    try:
        return Duration(float(amount), _UNITS[unit.strip()])
    except (ValueError, KeyError):
        raise ConfigError(f"{value!r}: {_RULE}") from None
