"""A training in Keras's own `fit`, as `BackupAndRestore` sees it."""

import contextlib
import dataclasses
import logging
import time

import keras
import numpy as np

from tfdist.callbacks.statistics import ReplicaStatistics
from tfdist.compat import trainer
from tfdist.compat.running_fit import RunningFit, begin_at, epoch_logs, finish_with, running_fit
from tfdist.errors import CheckpointError, UnsupportedError
from tfdist.progress import Progress
from tfdist.snapshot import Snapshot, held, put_training, take_training
from tfdist.snapshot.metrics import put_metrics, take_metrics
from tfdist.strategy import share_of

_log = logging.getLogger(__name__)


class PlainTraining(keras.callbacks.Callback):
    """What stands for `tfdist.loop.training.Training` in a call of `keras.Model.fit`.

    It is the last of its callbacks, so that all others have begun, or know that a step or an epoch is over, when it
    puts back or saves. A place is one between two traced calls; its steps are those that Keras numbers, which for the
    last call of an epoch may be more than there were batches.

    Attributes:
        share: this worker's place, the only one.
        callbacks: all of them.
        progress: where the training is; examples are not counted.
        stack: closed when `fit` ends, also by an exception.
    """

    def __init__(self, backup, model, *, skip_batches: bool):
        """`backup`: what saves it; it has begun, and the callbacks after it have not."""
        super().__init__()
        fit = running_fit(model)
        if fit is None:
            raise UnsupportedError(
                "BackupAndRestore is called by a loop that is neither tfdist.fit nor keras.Model.fit, and cannot put "
                "it where it was. Call one of them, and make the callback before you look up `fit`."
            )
        self.share = share_of(model.distribute_strategy)
        if self.share.workers > 1:
            raise UnsupportedError(
                f"BackupAndRestore in Keras's own fit on {self.share.workers} workers: it does not run there. Call "
                "tfdist.fit, or tfdist.enable_model_fit() once."
            )
        self.progress, self.stack = Progress(fit.first_epoch), fit.stack
        self.callbacks, self._fit, self._backup, self._skips = fit.callbacks, fit, backup, skip_batches
        self._logs: dict = {}
        self._restored, self._again = False, contextlib.ExitStack()
        self._metrics: list | None = None
        self.set_model(model)
        self.set_params(backup.params)
        self._statistics = ReplicaStatistics(model) if self.share.replicas > 1 else None
        for callback in [self] if self._statistics is None else [self._statistics, self]:
            fit.callbacks.append(callback)
            self.stack.callback(fit.callbacks.remove, callback)

    @property
    def is_saveable(self) -> bool:
        """Whether a checkpoint of now can be gone on from: inside an epoch, only by skipping."""
        return self._skips or self.progress.step == 0 or self.progress.trained

    def take(self) -> Snapshot | None:
        """What a checkpoint holds."""
        return take_training(
            self.model, self.share, self.progress, self._logs, self.callbacks, self._fit.feed.identity()
        )

    def put(self, directory) -> None:
        """Puts a checkpoint back, and the data where it was. Raises: CheckpointError, UnsupportedError."""
        with self.model.distribute_strategy.scope():
            trainer.build(self.model, self._fit.feed.spec)
        self.progress, self._logs = put_training(
            self.model, self.share, directory, self.callbacks, self._fit.feed.identity()
        )
        if self._statistics is not None:
            self._statistics.put_back()
        self._restored = True
        begin_at(self._fit, self.model, self.params["epochs"] if self.progress.stopped else self.progress.epoch)
        _position(self._fit, self.progress, self._skips)
        stored = self._logs
        if self.progress.trained:
            finish_with(self._fit, self.model, lambda own, logs: stored)
        elif self.progress.step:
            self._metrics = take_metrics(self.model)  # Keras resets them before the epoch begins
            finish_with(self._fit, self.model, lambda own, logs: own(logs or stored))
        if self.progress.begun:  # its hooks are called again, and nothing is done twice
            self._again.enter_context(held(self.model, self.callbacks))

    def on_train_begin(self, logs=None):
        self._backup.on_start()

    def on_epoch_begin(self, epoch, logs=None):
        if self._restored and epoch != self.progress.epoch:
            raise CheckpointError(
                f"The checkpoint was saved at {self.progress}, and fit begins with epoch {epoch + 1}. Leave "
                "initial_epoch as it was, or name another folder to start anew."
            )
        self._again.close()
        self._move(epoch=epoch, begun=True)
        if self._metrics is not None:
            put_metrics(self.model, self._metrics, self.share.first_replica)
        self._restored, self._metrics = False, None

    def on_train_batch_end(self, batch, logs=None):
        steps = batch + 1 - self.progress.step
        self._move(step=batch + 1, total=self.progress.total + steps)
        self._logs = _plain(logs)
        if self.progress.step != self.params["steps"]:  # else the epoch's end follows at once
            self._look()

    def on_test_begin(self, logs=None):
        if not self.progress.trained:
            self._move(trained=True)
            self._logs = _plain(epoch_logs(self.model, self._logs))

    def on_test_batch_end(self, batch, logs=None):
        self._look()

    def on_epoch_end(self, epoch, logs=None):
        self._move(epoch=epoch + 1, step=0, begun=False, trained=False, stopped=bool(self.model.stop_training))
        self._logs = _plain(logs)
        self._backup.on_epoch_over()
        if self.progress.epoch < self.params["epochs"] and not self.progress.stopped:
            self._look()

    def _look(self) -> None:
        wish = self._backup.wish()
        if wish is not None:
            self._backup.on_pause(wish)

    def _move(self, **fields) -> None:
        self.progress = dataclasses.replace(self.progress, **fields)


def _position(fit: RunningFit, progress: Progress, skips: bool) -> None:
    """Has the data go on at `progress`."""
    feed, start = fit.feed, time.monotonic()
    step = 0 if progress.trained else progress.step
    if step and not skips:
        raise UnsupportedError(
            f"The checkpoint was saved at {progress}. Keras's own fit can only go on inside an epoch by reading the "
            "batches before without training on them. Allow it with skip_batches=True, or call tfdist.fit."
        )
    feed.pass_epochs(progress.epoch - fit.first_epoch)
    if progress.trained:
        feed.skip_all()
    batches = step + feed.drawn
    if not skips and feed.drawn:
        _log.warning(
            "steps_per_epoch=%d: the data begins anew, though %d batches of it were trained on. To go on after them, "
            "give skip_batches=True, or call tfdist.fit.",
            feed.steps_per_epoch, feed.drawn,
        )  # fmt: skip
        feed.begin_anew()
    elif batches:
        feed.draw()
        feed.skip(step)
        _log.warning(
            "Read %d batches again in %.1f s to go on after them. That is right only if the data gives the same "
            "batches in the same order as before.",
            batches, time.monotonic() - start,
        )  # fmt: skip


def _plain(logs: dict | None) -> dict:
    """Scalars as floats, as in the history."""
    return {name: np.asarray(value) if np.ndim(value) else float(value) for name, value in (logs or {}).items()}
