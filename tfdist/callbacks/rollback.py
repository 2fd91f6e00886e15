"""Takes back what harmed a training, and goes on without it."""

import logging
import math
from typing import Any, NamedTuple

import keras

from tfdist.callbacks.backup import BackupAndRestore
from tfdist.compat.trainer import overrides
from tfdist.errors import ConfigError, LossError, UnsupportedError, UserError
from tfdist.progress import Pause, Progress

_log = logging.getLogger(__name__)

_MEMORY = 100  # steps
_ROUNDING = 2.0**-22
"""Of the epoch's average, a float32: what a difference of two of them may owe to rounding does not count."""


class MeanLoss(NamedTuple):
    """The mean loss over `rows` rows."""

    mean: float
    rows: int

    def since(self, before: "MeanLoss") -> float:
        """The mean over the rows that came in after `before`: no more than it certainly is."""
        if not before.rows:
            return self.mean
        total = self.mean * self.rows - before.mean * before.rows
        return (total - abs(self.mean) * self.rows * _ROUNDING) / (self.rows - before.rows)


class RollbackOnSpike(keras.callbacks.Callback):
    """Goes back to the last good checkpoint when the loss spikes, and skips the batches that did it.

    After each call of `tfdist.fit`, which has up to about 0.3 seconds of steps, it looks at their mean loss. It is a
    spike if it is no finite number, or more than `factor` times the average of the steps before, in which the weight of
    a step falls to 1/e in 100 steps. Then, before anything is saved, all workers put the model, the optimizer and the
    random states of the newest checkpoint back, and go on with the next batch. So the batches from the checkpoint to
    the spike are skipped, which is how PaLM was trained past its spikes (Chowdhery et al. 2022, "PaLM: Scaling Language
    Modeling with Pathways", section 5.1). If it spikes again before another checkpoint is saved, that checkpoint was
    bad, and the one before it is taken: keep some (`tfdist.checkpoint.Retention`).

    The count of epochs and steps goes on, and other callbacks keep their state. The ledger shows the skipped examples
    as missing. The metrics of an epoch are those of the batches that stay; NaN if none does.

    Args:
        backup: The callback that saves this training; list it too.
        factor: Above 1, for losses that are never negative; infinity: only a loss that is no finite number is a spike.
        at_most: How often it may go back in the whole training, resumes included.

    Raises, on all workers: LossError at a spike after that, or where there is no checkpoint to go back to;
        UnsupportedError in plain `keras.Model.fit`, and for a model with a `train_step` of its own.
    """

    every_steps = None  # It looks wherever a call ends.

    def __init__(self, backup: BackupAndRestore, factor: float, at_most: int = 3):
        super().__init__()
        if not factor > 1:
            raise ConfigError(f"factor={factor!r}: a spike is above 1 times the average. Give 10, say, or infinity.")
        if not isinstance(at_most, int) or at_most < 1:
            raise ConfigError(f"at_most={at_most!r}: give an integer of 1 or above, or leave the callback out.")
        self._backup, self._factor, self._at_most = backup, factor, at_most
        self._training: Any = None
        self._begin()

    def set_training(self, training) -> None:
        """Takes the training whose pauses this callback takes part in."""
        self._training = training

    def on_train_begin(self, logs=None):
        if self._training is None:
            raise UnsupportedError("RollbackOnSpike works in tfdist.fit, not in Keras's own fit. Call tfdist.fit.")
        self._begin()

    def on_start(self) -> None:
        """Checks what it can only check now. Raises: UserError."""
        if overrides(self.model, "train_step"):
            raise UnsupportedError(
                f"RollbackOnSpike cannot tell what the loss of {self.model.name} means, which has a train_step of its "
                "own. Leave the callback out, or train with Keras's train_step."
            )
        if not self._backup.saves(self._training):
            raise UserError("RollbackOnSpike: its BackupAndRestore is not among the callbacks. Hand over both.")

    def on_epoch_begin(self, epoch, logs=None):
        self._note()

    def on_train_batch_end(self, batch, logs=None):
        loss = self._loss().since(self._seen)
        bound = self._factor * self._average if self._average > 0 else math.inf
        if not math.isfinite(loss) or loss > bound:
            now = self._training.progress
            self._spike = f"Step {now.total} ({now}): the loss is {loss:.6g}, where {bound:.6g} is the bound"
            return
        self._average_in(loss, self._training.progress.total - self._step)
        self._note()

    def wish(self) -> Pause | None:
        """To go back, if there was a spike."""
        return Pause.GO_BACK if self._spike else None

    def on_pause(self, pause: Pause) -> None:
        """Goes back. Raises: LossError."""
        if pause is not Pause.GO_BACK:
            return
        now, spike = self._training.progress, self._spike
        if self._times == self._at_most:
            raise LossError(
                f"{spike}; the training has gone back {self._times} time(s) already, as often as it may. Lower the "
                "learning rate, clip the gradients or look at the data there; or raise at_most."
            )
        then = self._backup.go_back()
        if then is None:
            raise LossError(
                f"{spike}; there is no good checkpoint to go back to. Save more often, keep more checkpoints "
                "(retention), or look at the data and the learning rate."
            )
        self._times += 1
        self._note()
        if self._training.share.worker == 0:
            self._report(spike, now, then)

    def on_epoch_over(self) -> None:
        """Nothing to do: what an epoch's last steps did was seen before its end."""

    def on_train_end(self, logs=None):
        self._training = None

    def get_state(self):
        """For a checkpoint: how often it has gone back, and what losses it has seen."""
        return {"times": self._times, "average": self._average, "steps": self._steps}

    def set_state(self, state):
        """Goes on from a checkpoint."""
        self._times, self._average, self._steps = state["times"], state["average"], state["steps"]

    def _begin(self) -> None:
        self._times = self._steps = self._step = 0  # gone back; steps in the average; the training's at the last look
        self._average = 0.0
        self._seen, self._spike = MeanLoss(0.0, 0), ""

    def _loss(self) -> MeanLoss:
        """That of the epoch so far."""
        course = self._training.course
        rows = course.progress.counted
        return MeanLoss(course.logs["loss"] if rows else 0.0, rows)

    def _note(self) -> None:
        """Remembers where it looked, and that all was well there."""
        self._seen, self._step, self._spike = self._loss(), self._training.progress.total, ""

    def _average_in(self, loss: float, steps: int) -> None:
        """A plain mean at first, so that the first step does not count for more than others."""
        self._steps += steps
        weight = max(steps / self._steps, 1 - math.exp(-steps / _MEMORY))
        self._average += (loss - self._average) * weight

    def _report(self, spike: str, now: Progress, then: Progress) -> None:
        _log.warning(
            "%s. The model is that of step %d again: %d batches with %d examples are skipped. This may happen %d more "
            "time(s).",
            spike, then.total, now.total - then.total, now.examples - then.examples, self._at_most - self._times,
        )  # fmt: skip
