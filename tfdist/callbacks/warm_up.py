"""The learning rate of a large global batch for a model that is compiled already."""

import keras

from tfdist.durations import read_duration
from tfdist.errors import ConfigError, UnsupportedError
from tfdist.schedules import has_schedule, make_schedule, scale


class WarmUp(keras.callbacks.Callback):
    """Scales the compiled learning rate with the global batch and warms it up gradually (Goyal et al. 2017).

    The rate that the model was compiled with is taken to fit batches of `base_batch_size` rows. When the training
    begins, the optimizer gets a Keras schedule that rises from that rate to the one for `batch_size` and stays
    there, so that no batch hook is needed and a save loads in stock Keras. It keeps the schedule: a second training
    goes on at the scaled rate. ReduceLROnPlateau cannot set the rate of an optimizer that has a schedule.

    Args:
        batch_size: Rows of a global batch.
        base_batch_size: Rows of the batch that the compiled rate fits.
        warmup: A text such as "5 epochs" or "500 steps", or 0.
        rule: `linear`, `sqrt`, `none`, or `auto`: linear for SGD, sqrt for the Adam family.
        start: The rate of the first step; None: the compiled rate, or the scaled one if that is lower.
        verbose: 0 prints nothing; else one line says base, rule, global batch and rate.

    Raises, when the training begins: UnsupportedError if the optimizer has a schedule already; ConfigError.
    """

    def __init__(self, batch_size, base_batch_size, warmup="5 epochs", rule="auto", start=None, verbose=1):
        super().__init__()
        self.batch_size, self.base_batch_size, self.rule = batch_size, base_batch_size, rule
        self.warmup, self.start, self.verbose = read_duration(warmup), start, verbose
        self._warmed = None

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        if optimizer is self._warmed:
            return
        if has_schedule(optimizer):
            raise UnsupportedError(
                "WarmUp: the optimizer has a learning-rate schedule already. Compile it with a number, or give it "
                "tfdist.schedules.make_schedule(...), which has a warm-up and a decay."
            )
        base = float(optimizer.learning_rate.numpy())
        scaling = scale(base, self.base_batch_size, self.batch_size, self.rule, optimizer)
        optimizer.learning_rate = self._schedule(scaling)
        self._forget_traced_step()
        self._warmed = optimizer
        if self.verbose:
            print(f"{scaling}, warm-up {self.warmup}")

    def _schedule(self, scaling):
        steps = self.params.get("steps")
        if steps is None and self.warmup.unit == "epochs":
            raise ConfigError(
                f"WarmUp: a warm-up of {self.warmup}, and the steps of an epoch are not known. Give steps_per_epoch, "
                "or the warm-up in steps."
            )
        warmup = self.warmup.steps(steps or 0)
        total = steps * self.params["epochs"] if steps else warmup + 1
        start = min(scaling.base, scaling.rate) if self.start is None else self.start
        return make_schedule(scaling.rate, total_steps=total, warmup_steps=warmup, start=start)

    def _forget_traced_step(self):
        """A step that an earlier training traced has the old rate in it."""
        self.model.make_train_function(force=True)
