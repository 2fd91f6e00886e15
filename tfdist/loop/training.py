"""A `fit` as it runs: where it is, and what a checkpoint takes from it and puts back."""

import contextlib
import math
from typing import Any

from keras.callbacks import CallbackList

from tfdist.loop.course import Course
from tfdist.loop.drive import Driver
from tfdist.loop.feed import Feed
from tfdist.loop.pauses import Pauses
from tfdist.loop.record import Recorder
from tfdist.progress import Progress
from tfdist.snapshot import Snapshot, held, put_training, put_values, take_training


class Training:
    """What callbacks that take part in pauses are given; see `tfdist.loop.pauses`.

    Attributes:
        model: the compiled and built model.
        share: this worker's place among the workers.
        callbacks: all of this worker.
        course: where the training is.
        pauses: what the callbacks do between two steps.
        stack: closed when `fit` ends, also by an exception.
        is_saveable: whether a checkpoint can be gone on from, wherever it is saved.
    """

    is_saveable = True

    def __init__(self, model, feed: Feed, callbacks: CallbackList, first_epoch: int, stack: contextlib.ExitStack):
        self.model, self.share, self.course = model, feed.share, Course(Progress(first_epoch))
        self.pauses, self.stack = Pauses(callbacks.callbacks), stack
        self.callbacks, self._feed, self._callbacks = callbacks.callbacks, feed, callbacks
        self._driver: Any = None
        self._record: Recorder | None = None

    @property
    def progress(self) -> Progress:
        """Where the training is."""
        return self.course.progress

    def begin(self) -> None:
        """Has the callbacks begin."""
        self.pauses.introduce(self)
        self._callbacks.on_train_begin()

    def restore(self) -> None:
        """Has callbacks put a checkpoint back, if there is one, now that the model and its optimizers are built."""
        self.pauses.begin()

    def start(self, driver: Driver, record: Recorder | None) -> None:
        """Has `driver` run the epochs, from where the training is, and `record` told of them."""
        self._driver, self._record = driver, record
        self._feed.start(self.progress.epoch, self.progress.step)

    def run_epoch(self) -> dict:
        """Trains the epoch, or what is left of it. Returns its logs."""
        # An epoch that goes on had begun before: its hooks are called again, and nothing is done twice.
        again = held(self.model, self.callbacks) if self.progress.begun else contextlib.nullcontext()
        with again:
            self._callbacks.on_epoch_begin(self.progress.epoch)
        self.course.move(begun=True)
        if self.progress.step == 0:
            self.course.logs = {}
        if not self.progress.trained:
            self._driver.run_epoch(self._callbacks, self._record)
            self._driver.agree_to_go_back()
            self.course.move(trained=True)
        return dict(self.course.logs)

    def end_epoch(self, logs: dict) -> None:
        """Goes on to the next epoch, once all callbacks know that this one is over, with `logs`."""
        stopped = self._driver.agree_to_stop()
        self.course.move(epoch=self.progress.epoch + 1, step=0, counted=0, begun=False, trained=False, stopped=stopped)
        self.course.logs = logs
        self.pauses.epoch_is_over()

    def take(self) -> Snapshot | None:
        """What a checkpoint holds, as it is now, on the chief. Every worker calls it at the same step."""
        if self._record is not None:
            self._record.flush()
        return take_training(self.model, self.share, self.progress, self.course.logs, self.callbacks, self._identity)

    def put(self, directory) -> None:
        """Puts the checkpoint in `directory` back, and the training where it was. Every worker calls it.

        Raises: CheckpointError if it does not fit the model or, inside of an epoch, the data.
        """
        progress, logs = put_training(self.model, self.share, directory, self.callbacks, self._identity)
        self.course.progress, self.course.logs = progress, logs

    def go_back(self, directory) -> Progress:
        """Puts the model back as the checkpoint in `directory` has it; the training and its callbacks go on from here.

        The steps since then are as if they had not been: the ledger takes them back, and so do the metrics of the
        epoch. Every worker calls it.

        Returns: where the training was then.
        Raises: CheckpointError if it does not fit the model.
        """
        then, logs = put_values(self.model, self.share, directory, self.progress.epoch)
        if logs is None:
            self._driver.reset_metrics()
        self.course.logs = dict.fromkeys(self.course.logs, math.nan) if logs is None else logs
        self.course.move(counted=0 if logs is None else then.counted)
        if self._record is not None:
            self._record.take_back(self.progress.total - then.total)
        return then

    @property
    def _identity(self) -> dict:
        """What must be the same to go on inside of an epoch."""
        workers = {"workers": self.share.workers} if self._feed.data.shares_rows else {}
        return self._feed.identity() | workers
