"""The learning rate for a global batch: scaling rules, gradual warm-up, and what follows it.

Everything that can be said with Keras's own schedules is said with them, so that a saved model loads without
tfdist. Only a warm-up into a step or polynomial decay needs `WarmUp`; what follows that warm-up is a stock
schedule of the global step again, and `drop_warmup` leaves it alone on the optimizer.
"""

import keras

from tfdist.errors import ConfigError
from tfdist.scaling import Decay, Scaling, auto_rule, scale

__all__ = ["Decay", "Scaling", "WarmUp", "auto_rule", "drop_warmup", "has_schedule", "make_schedule", "scale"]


def make_schedule(peak, *, total_steps, warmup_steps=0, start=None, decay=Decay()):
    """The learning rate of each optimizer step.

    Gradual warm-up (Goyal et al. 2017, section 2.2): from `start` at step 0, linearly, to `peak` at step
    `warmup_steps`. Then `decay`, whose cosine and polynomial end at `total_steps`.

    Returns: a float where the rate never changes, else a `keras.optimizers.schedules.LearningRateSchedule`.
    Raises: ConfigError if the warm-up leaves no step of the training, or a boundary lies within it.
    """
    start = peak if start is None else start
    _check_steps(total_steps, warmup_steps, decay)
    if decay.kind in ("constant", "cosine"):
        return _constant_or_cosine(float(peak), total_steps, warmup_steps, float(start), decay)
    after = _step(peak, decay) if decay.kind == "step" else _polynomial(peak, total_steps, warmup_steps, decay)
    return WarmUp(float(start), warmup_steps, after) if warmup_steps else after


def _check_steps(total_steps, warmup_steps, decay):
    if not 0 <= warmup_steps < total_steps:
        raise ConfigError(
            f"A warm-up of {warmup_steps} steps in a training of {total_steps}: it must end before the training. "
            "Shorten it or train for more epochs."
        )
    if decay.kind == "step" and (not decay.boundaries or min(decay.boundaries) < max(1, warmup_steps)):
        raise ConfigError(
            f"Step boundaries at {list(decay.boundaries)} with a warm-up of {warmup_steps} steps: the first one "
            "lies at the end of the warm-up or later. Name one at least, or take another schedule."
        )


def _constant_or_cosine(peak, total_steps, warmup_steps, start, decay):
    if decay.kind == "constant" and (warmup_steps == 0 or start == peak):
        return peak
    return keras.optimizers.schedules.CosineDecay(
        start if warmup_steps else peak,
        decay_steps=total_steps - warmup_steps,
        # A cosine that ends where it begins is Keras's one schedule with a warm-up into a constant rate.
        alpha=1.0 if decay.kind == "constant" else decay.end_factor,
        warmup_target=peak if warmup_steps else None,
        warmup_steps=warmup_steps,
    )


def _step(peak, decay):
    bounds = sorted(decay.boundaries)
    values = [peak * decay.step_factor**i for i in range(len(bounds) + 1)]
    # Keras's boundary is the last step of the old value, ours the first step of the new one.
    return keras.optimizers.schedules.PiecewiseConstantDecay([b - 1 for b in bounds], values)


def _polynomial(peak, total_steps, warmup_steps, decay):
    """The decay over the steps after the warm-up, written as one over all steps: `((T-s)/(T-W))^p` is
    `(T/(T-W))^p * (1-s/T)^p`.
    """
    end = peak * decay.end_factor
    stretch = (total_steps / (total_steps - warmup_steps)) ** decay.power
    return keras.optimizers.schedules.PolynomialDecay(
        end + (peak - end) * stretch, decay_steps=total_steps, end_learning_rate=end, power=decay.power
    )


@keras.saving.register_keras_serializable("tfdist")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A straight line from `start` at step 0 to `after(steps)` at step `steps`, then the schedule `after`.

    `after` is a schedule of the same step count, or a number. A model saved with this schedule needs `import
    tfdist.schedules` before it is loaded; `drop_warmup` takes the schedule off once it has done its work.
    """

    def __init__(self, start, steps, after):
        super().__init__()
        if steps < 1:
            raise ConfigError(f"A warm-up of {steps} steps: it takes one at least; or leave it out.")
        self.start, self.steps, self.after = start, steps, after

    def __call__(self, step):
        done = keras.ops.minimum(keras.ops.cast(step, "float32") / self.steps, 1.0)
        ramp = self.start + (self._after(self.steps) - self.start) * done
        return keras.ops.where(step < self.steps, ramp, self._after(step))

    def _after(self, step):
        return keras.ops.cast(self.after(step) if callable(self.after) else self.after, "float32")

    def get_config(self):
        after = keras.saving.serialize_keras_object(self.after) if callable(self.after) else self.after
        return {"start": self.start, "steps": self.steps, "after": after}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "after": keras.saving.deserialize_keras_object(config["after"])})


def has_schedule(optimizer) -> bool:
    """Whether a schedule, rather than a number, sets the learning rate of this Keras optimizer."""
    return not isinstance(getattr(optimizer, "inner_optimizer", optimizer).get_config()["learning_rate"], float)


def drop_warmup(optimizer, schedule):
    """Once the warm-up of `schedule`, which `optimizer` trains with, is over, leaves on it what follows alone.

    Both give the same rates from then on, and stock Keras loads the second. Does nothing where `schedule` is no
    `WarmUp`. Call it between trainings: a traced train step keeps the schedule that it was traced with.
    """
    if isinstance(schedule, WarmUp) and callable(schedule.after) and optimizer.iterations.numpy() >= schedule.steps:
        optimizer.learning_rate = schedule.after
