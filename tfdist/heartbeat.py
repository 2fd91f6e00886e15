"""That a training is alive and how far it is, for the launcher that watches it: two numbers in a file.

The environment variable TFDIST_HEARTBEAT names a file of 16 bytes, which the launcher has made: the steps of the whole
training that are through plus 1, where 0 says that none is known, and the number of beats, 8 bytes each, little-endian.
The launcher looks whether the second one changes. A beat is a write to mapped memory, without a system call.
"""

import functools
import logging
import mmap
import os
import struct

HEARTBEAT = "TFDIST_HEARTBEAT"
_LAYOUT = struct.Struct("<QQ")

_log = logging.getLogger(__name__)


def beat(step: int | None = None) -> None:
    """Says that something was done. `step`: optimizer steps of the whole training so far; None for as many as before.

    Called by the loops after each traced call, of a training, an evaluation and a prediction alike. Does nothing
    without the variable.
    """
    if pulse := _pulse(os.environ.get(HEARTBEAT)):
        pulse.step = pulse.step if step is None else step
        pulse.write(pulse.step + 1)


def rest() -> None:
    """Says that what follows is none of the loops': until the next beat, silence is not taken for a hang.

    Called at the end of a training, an evaluation and a prediction.
    """
    if pulse := _pulse(os.environ.get(HEARTBEAT)):
        pulse.write(0)


def read(path: str | os.PathLike) -> int | None:
    """The step in a heartbeat's file; None before the first beat, and while the training rests."""
    with open(path, "rb") as file:
        state, _ = _LAYOUT.unpack(file.read(_LAYOUT.size))
    return state - 1 if state else None


class _Pulse:
    """The file's two numbers in memory, and the last step, which outlives a rest."""

    def __init__(self, memory: mmap.mmap):
        self._numbers = memoryview(memory).cast("Q")
        self.step = 0

    def write(self, state: int) -> None:
        self._numbers[0] = state
        self._numbers[1] += 1


@functools.lru_cache(maxsize=1)
def _pulse(path: str | None) -> _Pulse | None:
    """The pulse that is written to a file; None if there is none. No training ends for want of it."""
    if not path:
        return None
    try:
        with open(path, "r+b") as file:
            return _Pulse(mmap.mmap(file.fileno(), _LAYOUT.size))
    except (OSError, ValueError) as error:
        _log.warning("%s=%s: %s. The launcher does not see that this process is alive.", HEARTBEAT, path, error)
        return None
