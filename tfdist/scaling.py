"""How a learning rate follows the global batch, and what decays are called. Numbers only, without TensorFlow."""

import dataclasses

from tfdist.errors import ConfigError

RULES = ("auto", "linear", "sqrt", "none")
KINDS = ("constant", "cosine", "step", "polynomial")

# Linear for SGD: Goyal et al. 2017, arXiv:1706.02677. The square root keeps the variance of the step (Krizhevsky
# 2014, arXiv:1404.5997); for Adam and RMSprop, Malladi et al. 2022, arXiv:2205.10287; for LAMB, You et al. 2019,
# arXiv:1904.00962. `auto` does not guess for the others.
AUTO_RULES = {
    "sgd": "linear",
    "adam": "sqrt",
    "adamw": "sqrt",
    "nadam": "sqrt",
    "adamax": "sqrt",
    "rmsprop": "sqrt",
    "lamb": "sqrt",
}


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A base rate, found at `base_batch_size`, carried over to the global batch `batch_size` by `rule`."""

    base: float
    base_batch_size: int
    batch_size: int
    rule: str

    @property
    def rate(self) -> float:
        """The learning rate for the global batch."""
        factor = self.batch_size / self.base_batch_size
        return self.base * {"linear": factor, "sqrt": factor**0.5, "none": 1.0}[self.rule]

    def __str__(self):
        return (
            f"learning rate {self.rate:g}: base {self.base:g} at batch {self.base_batch_size}, "
            f"rule {self.rule}, global batch {self.batch_size}"
        )


def scale(base, base_batch_size, batch_size, rule="auto", optimizer="sgd") -> Scaling:
    """The learning rate `base`, which fits batches of `base_batch_size`, for a global batch of `batch_size`.

    Args:
        rule: `linear`, `sqrt`, `none`, or `auto`: linear for SGD, sqrt for the Adam family.
        optimizer: what `auto` decides on: the name of a Keras optimizer, or an optimizer.

    Raises: ConfigError for an unknown rule, and for `auto` with an optimizer that no published rule covers.
    """
    if rule not in RULES:
        raise ConfigError(f"Scaling rule {rule!r}: choose one of {', '.join(RULES)}.")
    if rule == "auto":
        rule = "none" if batch_size == base_batch_size else auto_rule(optimizer)
    return Scaling(float(base), base_batch_size, batch_size, rule)


def auto_rule(optimizer) -> str:
    """The rule that `auto` stands for with this optimizer or optimizer name. Raises: ConfigError if there is none."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    classes = [optimizer] if isinstance(optimizer, str) else [c.__name__ for c in type(optimizer).__mro__]
    for name in classes:
        if name.lower() in AUTO_RULES:
            return AUTO_RULES[name.lower()]
    raise ConfigError(
        f"Scaling rule 'auto' with the optimizer {classes[0]}: it covers {', '.join(AUTO_RULES)}. "
        "State linear, sqrt or none."
    )


@dataclasses.dataclass(frozen=True)
class Decay:
    """What follows the warm-up, over the training's steps; durations are optimizer steps from its start.

    Attributes:
        kind: `constant`; `cosine` or `polynomial` down to `end_factor` of the peak at the end of the training,
            the latter with `power` (1 is a line); `step`, times `step_factor` at each of `boundaries`.
    """

    kind: str = "constant"
    end_factor: float = 0.0
    power: float = 1.0
    boundaries: tuple[int, ...] = ()
    step_factor: float = 0.1

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ConfigError(f"Schedule {self.kind!r}: choose one of {', '.join(KINDS)}.")
