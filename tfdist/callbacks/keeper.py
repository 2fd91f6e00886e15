"""Saves a training and puts it back, on all workers together."""

import dataclasses
import logging
import time
from collections.abc import Callable

from tfdist.checkpoint import Checkpoints, Found, Saver
from tfdist.errors import CheckpointError
from tfdist.progress import Progress
from tfdist.snapshot import newest_on_all
from tfdist.step.agree import share_bytes

_log = logging.getLogger(__name__)


class Keeper:
    """What stands between a training and its folder of checkpoints, which the chief alone reads and writes.

    A training is a `tfdist.loop.training.Training` or what stands for it in Keras's own `fit`. Every worker calls the
    methods that take one, at the same step.

    Args:
        checkpoints: The folder.
        max_failed_saves: How many saves may fail in a row.
        tell: `(event, **values)`, called on the chief after each save and restore.
    """

    def __init__(self, checkpoints: Checkpoints, max_failed_saves: int, tell: Callable[..., None]):
        self._checkpoints, self._saver, self._tell = checkpoints, Saver(max_failed_saves), tell
        self._newest: int | None = None  # when it last went back,
        self._bad: int | None = None  # and to where

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._saver.busy

    @property
    def cost(self) -> float | None:
        """Seconds that the last save took from its start to its commit; None before there is one."""
        return self._saver.last_seconds

    def restore(self, training) -> bool:
        """Puts the newest whole checkpoint back. Returns whether there is one.

        Raises: CheckpointError, on all workers, if there are some of which none is whole, or if it does not fit.
        """
        start = time.monotonic()
        self._saver.wait()
        self._saver.failed = 0
        with newest_on_all(training.model.distribute_strategy, training.share, self._checkpoints) as directory:
            if directory is None:
                return False
            training.put(directory)
        if training.share.worker == 0:
            seconds = time.monotonic() - start
            _log.info("Restored step %d (%s) in %.1f s.", training.progress.total, training.progress, seconds)
            self.say("restore", step=training.progress.total, seconds=seconds)
        return True

    def save(self, training) -> None:
        """Takes what a checkpoint holds, and has it written while the training goes on.

        It waits for the write before, if that still runs, and leaves this one out if that takes minutes.

        Raises: CheckpointError, on all workers, if too many saves in a row have failed.
        """
        start = time.monotonic()
        is_ready = self._saver.is_ready(training.progress.total)
        self._check(training)
        snapshot = training.take()
        if snapshot is not None and is_ready:
            blocked = time.monotonic() - start
            self._saver.save(lambda: self._write(snapshot, blocked), snapshot.progress.total)

    def go_back(self, training) -> Progress | None:
        """Puts the model of an earlier checkpoint back, at the same place of the training.

        Of the newest one; if nothing was saved since the last time, of the one before that of last time.

        Returns: where the training was then; None if there is no checkpoint.
        Raises: CheckpointError, on all workers.
        """
        self.settle(training)
        strategy, share = training.model.distribute_strategy, training.share
        with newest_on_all(strategy, share, self._checkpoints, self._find_good) as directory:
            if directory is None:
                return None
            then = training.go_back(directory)
        self._bad = then.total
        if share.worker == 0:
            self.say("rollback", step=training.progress.total, checkpoint=then.total)
        return then

    def settle(self, training) -> bool:
        """Returns once the last save is committed, or has failed: whether it is committed, on all workers alike."""
        self._saver.wait()
        self._check(training)
        failed = b"failed" if self._saver.failed else b""
        return not share_bytes(training.model.distribute_strategy, training.share, failed)

    def remove(self) -> None:
        """Removes the checkpoints, on the chief, as far as that can be done."""
        try:
            self._checkpoints.remove()
        except OSError as error:
            _log.warning("%s: the checkpoints could not be removed: %s.", self._checkpoints.path, error)

    def _find_good(self) -> Found | None:
        """On the chief: the newest checkpoint that is not known to lead to harm."""
        newest = next(iter(self._checkpoints.steps()), None)
        if newest != self._newest:
            self._newest, self._bad = newest, None
        return self._checkpoints.newest(before=self._bad)

    def _write(self, snapshot, blocked: float) -> None:
        start = time.monotonic()
        self._checkpoints.commit(
            snapshot.progress.total,
            snapshot.files.write,
            progress=dataclasses.asdict(snapshot.progress),
            metrics=snapshot.metrics,
            arrays=snapshot.files.facts(),
        )
        self.say("save", step=snapshot.progress.total, blocked=blocked, seconds=time.monotonic() - start)

    def say(self, event: str, **values) -> None:
        """Tells the user's function, whose failures are no reason to end a training."""
        try:
            self._tell(event, **values)
        except Exception:
            _log.exception("%r, which is told of each %s, failed. The training goes on.", self._tell, event)

    def _check(self, training) -> None:
        """Raises what ends the training, on all workers alike."""
        failure = str(self._saver.failure or "").encode()
        failure = share_bytes(training.model.distribute_strategy, training.share, failure)
        if failure:
            raise CheckpointError(failure.decode())
