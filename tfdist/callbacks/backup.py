"""Saves a training so that it loses nothing and repeats nothing when it is interrupted."""

import logging
import numbers
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfdist.callbacks.keeper import Keeper
from tfdist.callbacks.plain import PlainTraining
from tfdist.checkpoint import Checkpoints, EveryEpochs, EverySteps, Retention, read_interval
from tfdist.compat.running_fit import close_stacks
from tfdist.errors import ConfigError, Preempted, UnsupportedError, UserError
from tfdist.preemption import Listener, read_watcher
from tfdist.progress import Pause, Progress
from tfdist.step.agree import gather_bytes

_log = logging.getLogger(__name__)


class BackupAndRestore(keras.callbacks.Callback):
    """Saves the training in `backup_dir`, and puts it back when the same program is started again.

    A checkpoint has all that decides what comes next: the model's variables, the optimizer's, seeds and the states of
    Python's, NumPy's and TensorFlow's generators, the place in the epoch and the metrics so far, the history, and the
    state of the other callbacks (of Keras's own, and of any with `get_state()` and `set_state(state)`). The chief
    writes it in the background, and it is there whole or not at all. A training that goes on from it has, with as many
    workers, the same bits as if it had never ended; with more or fewer it sees the same global batches.

    It listens for preemption too: after SIGTERM, SIGUSR1 or SIGINT, or a word from a watcher, on any worker all of them
    save after the same step and raise `tfdist.Preempted`, which ends the process with code 75.

    In plain `keras.Model.fit`, on one device and under MirroredStrategy, it saves between epochs, or with
    `skip_batches` inside them too. There the order of the data is not known, but only that a `shuffle` counts its
    iterations: the resume is exact if the data has the same order in each run (seeded shuffles; for those of arrays
    `keras.utils.set_random_seed`). A preempted epoch begins anew without `skip_batches`.

    Args:
        backup_dir: A folder for the checkpoints of this training alone, a path or a URL of `tf.io.gfile`. Only the
            chief has to see it.
        save_freq: "epoch", a number of optimizer steps, a text such as "10 minutes", "auto" for the interval that costs
            least (`tfdist.checkpoint.young_daly`), or False: on preemption alone.
        double_checkpoint: Keep the last two, in case the newest is damaged.
        delete_checkpoint: Remove the checkpoints when the training has ended. Otherwise its end is saved too.
        retention: Which checkpoints stay; in the place of `double_checkpoint`.
        mean_time_between_failures: Of the whole job, for "auto": a text such as "6 hours".
        max_failed_saves: How many saves in a row may fail, on a full disk say, before the training ends.
        grace: Seconds from the notice of a preemption until the process has to be gone; None: do not listen.
        watchers: Other things to look at for a notice: "gce", "aws", "file:PATH", or any of `tfdist.preemption`.
        skip_batches: In Keras's own `fit`, save inside an epoch too, and go on there by reading the batches before
            again without training on them, which takes the time that they take to read.
        tell: `(event, **values)`, called on the chief: "restore" (step, seconds), "save" (step, seconds, and those that
            the training was blocked), "preemption" (step, reason), "rollback" (step, and that of the checkpoint).

    Raises, at the start of `fit` or at a save, on all workers: CheckpointError; in Keras's own `fit` also
        UnsupportedError, for a `save_freq` inside an epoch without `skip_batches`, and on several workers.
    """

    def __init__(
        self,
        backup_dir,
        save_freq="epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
        *,
        retention: Retention | None = None,
        mean_time_between_failures=None,
        max_failed_saves: int = 3,
        grace: float | None = 30.0,
        watchers: Sequence | str = (),
        skip_batches: bool = False,
        tell: Callable[..., None] | None = None,
    ):
        super().__init__()
        if not backup_dir:
            raise ConfigError(f"backup_dir={backup_dir!r}: checkpoints need a folder of their own. Name one.")
        _check(max_failed_saves, grace, retention, tell)
        self._interval, self._save_freq = _interval(save_freq, mean_time_between_failures), save_freq
        self._delete, self._grace, self._watchers = delete_checkpoint, grace, _watchers(watchers)
        self._skips = skip_batches
        checkpoints = Checkpoints(backup_dir, retention or Retention(keep_last=1 + bool(double_checkpoint)))
        self._keeper = Keeper(checkpoints, max_failed_saves, tell or _tell_nobody)
        self._listener: Listener | None = None
        self._training: Any = None
        self._saved, self._saved_at = Progress(), 0.0
        close_stacks()

    @property
    def every_steps(self) -> int | None:
        """Has `tfdist.fit` end its calls where a save is due."""
        return self._interval.steps if isinstance(self._interval, EverySteps) else None

    def set_training(self, training) -> None:
        """Takes the training whose pauses this callback takes part in."""
        self._training = training
        training.stack.callback(self._forget_training)

    def on_train_begin(self, logs=None):
        if self._training is None:
            self._check_plain()
            self.set_training(PlainTraining(self, self.model, skip_batches=self._skips))

    def on_start(self) -> None:
        """Begins to listen, and puts the newest checkpoint back if there is one."""
        if sum(isinstance(callback, BackupAndRestore) for callback in self._training.callbacks) > 1:
            raise UserError("Two BackupAndRestore in one training: it can go on from one place only. Leave one out.")
        if self._grace is not None:
            self._listener = self._training.stack.enter_context(Listener(self._watchers, self._grace))
        self._keeper.restore(self._training)
        self._note_save()
        if self._has_ended and self._training.share.worker == 0:
            _log.warning("This training had ended, %s: nothing is left to train.", self._training.progress)

    def wish(self) -> Pause | None:
        """To leave, on the worker that has a notice; to save, on the chief."""
        if self._listener is not None and self._listener.notice is not None:
            return Pause.LEAVE
        return Pause.SAVE if self._training.share.worker == 0 and self._is_due() else None

    def on_pause(self, pause: Pause) -> None:
        """Saves; to leave, it waits for the commit. Raises: Preempted."""
        if pause is Pause.GO_BACK:
            return
        if self._training.is_saveable and self._training.progress != self._saved:
            self._save()
        if pause is Pause.LEAVE:
            self._leave()

    def go_back(self) -> Progress | None:
        """Puts the model back as the newest checkpoint has it that is not known to lead to harm, on a pause.

        The training keeps its place in the data, and the callbacks their state. Every worker calls it.

        Returns: where the training was then; None if there is no checkpoint.
        Raises: CheckpointError.
        """
        return self._keeper.go_back(self._training)

    def saves(self, training) -> bool:
        """Whether this is a callback of `training`."""
        return self._training is training

    def on_epoch_over(self) -> None:
        """Saves if it is time, or if this was the last epoch and its end stays."""
        epoch = self._training.progress.epoch
        by_epochs = isinstance(self._interval, EveryEpochs) and self._interval.at_epoch(epoch, 0.0, None)
        if by_epochs or (self._has_ended and not self._delete):
            self._save()

    def on_train_batch_end(self, batch, logs=None):
        """Overridden, so that `every_steps` counts."""

    def on_train_end(self, logs=None):
        self._keeper.settle(self._training)
        if self._listener is not None and self._listener.notice is not None:
            _log.warning("The training had come to its end by then. What follows it goes on, and is not saved.")
        if self._delete and self._training.share.worker == 0:
            self._keeper.remove()

    def _check_plain(self) -> None:
        """Refuses what Keras's own `fit` cannot do. Raises: UnsupportedError."""
        if not self._skips and not isinstance(self._interval, EveryEpochs):
            raise UnsupportedError(
                f"save_freq={self._save_freq!r} in Keras's own fit: a checkpoint inside an epoch is of use only if the "
                "batches before can be skipped, and its data can only be read again from the start. Save at each "
                '"epoch", allow that with skip_batches=True, or call tfdist.fit, which finds the place at once.'
            )

    def _forget_training(self) -> None:
        self._training = self._listener = None

    @property
    def _has_ended(self) -> bool:
        """Whether no epoch is left."""
        return self._training.progress.stopped or self._training.progress.epoch >= self.params["epochs"]

    def _is_due(self) -> bool:
        """Whether to save at this step: the chief's word, for clocks differ."""
        step = self._training.progress.total
        if self._interval is None or step == self._saved.total:
            return False
        # What goes by the clock does not wait for the save before.
        waits = self._keeper.is_busy and not isinstance(self._interval, EverySteps)
        return not waits and self._interval.at_step(step, time.monotonic() - self._saved_at, self._keeper.cost)

    def _save(self) -> None:
        self._keeper.save(self._training)
        self._note_save()

    def _note_save(self) -> None:
        self._saved, self._saved_at = self._training.progress, time.monotonic()

    def _leave(self) -> None:
        step, reason = self._training.progress.total, self._reasons()
        is_committed = self._keeper.settle(self._training)
        if self._training.share.worker == 0:
            self._keeper.say("preemption", step=step, reason=reason)
        stands = "which is saved" if is_committed else "which could not be saved: the checkpoint before stands"
        if self._saved.total != step:
            stands = f"in an epoch that begins anew, after step {self._saved.total}"
        message = f"Preempted ({reason}) after step {step}, {stands}. Run the whole job again to go on."
        _log.warning(message)
        raise Preempted(message)

    def _reasons(self) -> str:
        """Which workers have a notice, and which."""
        notice = self._listener.notice if self._listener is not None else None
        own = "" if notice is None else notice.reason
        reasons = gather_bytes(self._training.model.distribute_strategy, self._training.share, own.encode())
        return ", ".join(f"worker {worker}: {reason.decode()}" for worker, reason in enumerate(reasons) if reason)


def _check(max_failed_saves, grace, retention, tell) -> None:
    """Raises ConfigError for an argument of the wrong kind, which a save would only show later."""
    if not isinstance(max_failed_saves, int) or max_failed_saves < 1:
        raise ConfigError(f"max_failed_saves={max_failed_saves!r}: it counts saves, an integer of 1 or above.")
    if grace is not None and (not isinstance(grace, int | float) or not grace > 0):
        raise ConfigError(f"grace={grace!r}: it is a number of seconds above 0, or None to listen for nothing.")
    if retention is not None and not isinstance(retention, Retention):
        raise ConfigError(f"retention={retention!r}: give tfdist.checkpoint.Retention(keep_last=3), for example.")
    if tell is not None and not callable(tell):
        raise ConfigError(f"tell={tell!r}: it is called with what happens, so give a function.")


def _watchers(given) -> list:
    """Watchers, by their names or as they are."""
    given = [given] if isinstance(given, str) or hasattr(given, "look") else given
    return [read_watcher(watcher) if isinstance(watcher, str) else watcher for watcher in given]


def _interval(save_freq, mtbf):
    """The interval that Keras's or a text's `save_freq` means; None for False."""
    if save_freq is False:
        return None
    if save_freq == "epoch":
        return EveryEpochs(1)
    if not isinstance(save_freq, bool) and isinstance(save_freq, numbers.Integral) and int(save_freq) > 0:
        return EverySteps(int(save_freq))
    try:
        return read_interval(save_freq, mtbf)
    except ConfigError as error:
        raise ConfigError(f"save_freq={error}") from None


def _tell_nobody(event, **values):
    """What happens to events that nobody asked for."""
