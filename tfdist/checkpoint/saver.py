"""Writes beside the training: one checkpoint at a time, and never a word too few about one that failed."""

import errno
import logging
import math
import threading
import time
from collections.abc import Callable

from tfdist.errors import CheckpointError

_log = logging.getLogger(__name__)
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_ACCESS = {errno.EACCES, errno.EPERM, errno.EROFS}
_PATIENCE = 300.0
_TELL_EVERY = 30.0


class Saver:
    """Runs jobs that write checkpoints in a thread of its own. The process does not end before its last one is through.

    Args:
        max_failed_saves: how many saves in a row may fail; see `failure`.
        clock: seconds.

    Attributes:
        failed: how many of the last saves failed in a row.
        last_seconds: what the last save that succeeded took; None before the first.
    """

    def __init__(self, max_failed_saves: int = 3, clock: Callable[[], float] = time.monotonic):
        self._limit, self._clock = max_failed_saves, clock
        self._thread = threading.Thread()
        self._failure: CheckpointError | None = None
        self.failed = 0
        self.last_seconds: float | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is being written."""
        return self._thread.is_alive()

    @property
    def failure(self) -> CheckpointError | None:
        """The error that ends the training once `max_failed_saves` in a row have failed; None before."""
        return self._failure if self.failed >= self._limit else None

    def is_ready(self, step: int) -> bool:
        """Waits for the save before. If that does not end in five minutes, as on a hung mount, `step`'s has failed."""
        if self.wait(_PATIENCE):
            return True
        self._note(TimeoutError(f"the {self._thread.name} is still being written"), step)
        return False

    def save(self, job: Callable[[], None], step: int) -> None:
        """Waits for the save before, then starts `job()`. An exception of the job is logged and counted, not raised."""
        self.wait()
        # Python waits for threads that are no daemons before it ends, after an exception too.
        name = f"checkpoint of step {step}"
        self._thread = threading.Thread(target=self._run, args=(job, step), name=name, daemon=False)
        self._thread.start()

    def wait(self, timeout: float = math.inf) -> bool:
        """Waits for the save that is being written, at most `timeout` seconds; returns whether none is any more."""
        start = time.monotonic()
        while self.busy and (waited := time.monotonic() - start) < timeout:
            if waited >= _TELL_EVERY:
                _log.warning("Waiting for the %s to be written, %.0f s so far.", self._thread.name, waited)
            self._thread.join(min(_TELL_EVERY, timeout - waited))
        return not self.busy

    def _run(self, job, step):
        start = self._clock()
        try:
            job()
        except Exception as error:
            self._note(error, step)
        else:
            self.failed, self.last_seconds = 0, self._clock() - start

    def _note(self, error, step):
        self.failed += 1
        what = f"The checkpoint of step {step} was not written ({error!r})"
        self._failure = CheckpointError(f"{what}, {self.failed} in a row. {_remedy(error)}")
        _log.error(
            "%s: failure %d in a row, and the training ends at %d. What was saved before stands. %s",
            what, self.failed, self._limit, _remedy(error), exc_info=error,
        )  # fmt: skip


def _remedy(error):
    number = getattr(error, "errno", None)
    if number in _NO_SPACE:
        return "Free some space, or keep fewer checkpoints."
    if number in _NO_ACCESS:
        return "Let this user write to the folder, or name another one."
    return "See that the folder is mounted and can be written to, or name another one."
