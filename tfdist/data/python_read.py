"""Python functions inside of pipelines, with an orderly end.

A pipeline reads ahead in threads of its own. A thread that waits for the interpreter while the process ends waits for
ever, and the process with it: TensorFlow joins the thread, which the interpreter never lets in again. So the end of the
process waits until the pipelines have filled their buffers and rest.
"""

import collections
import contextlib
import threading
import time
from collections.abc import Iterator

import tensorflow as tf

from tfdist.compat.process_end import at_process_end
from tfdist.errors import TfdistError

_QUIET_SECONDS = 0.05
_LONGEST_WAIT = 30.0


class _Calls:
    """Counts the calls under way, and all that ever began."""

    def __init__(self):
        self._lock = threading.Lock()
        self._begun = self._running = 0

    def __enter__(self):
        with self._lock:
            self._begun += 1
            self._running += 1

    def __exit__(self, *error):
        with self._lock:
            self._running -= 1

    def wait_for_rest(self):
        """Returns when no call has been under way for a moment, or after the longest wait."""
        seen, end = None, time.monotonic() + _LONGEST_WAIT
        while time.monotonic() < end and (self._running or seen != self._begun):
            seen = self._begun
            time.sleep(_QUIET_SECONDS)


_calls = _Calls()
_failures: collections.deque[TfdistError] = collections.deque(maxlen=16)
at_process_end(_calls.wait_for_rest)


def read_in_python(read, indices, specs) -> list:
    """The tensors of `specs` that `read(indices)` returns as a list of arrays. For use in a traced function."""

    @tf.autograph.experimental.do_not_convert  # converted, each call takes some 100 µs more
    def counted(index):
        with _calls, kept_errors():
            return read(index)

    leaves = tf.numpy_function(counted, [indices], [spec.dtype for spec in specs])
    return [tf.ensure_shape(leaf, spec.shape) for leaf, spec in zip(leaves, specs)]


@contextlib.contextmanager
def kept_errors() -> Iterator[None]:
    """Around Python code that TensorFlow calls: keeps the TfdistError that it raises, for `reading_errors`."""
    try:
        yield
    except TfdistError as error:
        _failures.append(type(error)(*error.args))  # a copy: the frames of the original hold files and buffers
        raise


@contextlib.contextmanager
def reading_errors() -> Iterator[None]:
    """Raises the error that a `read` raised, and not the one in which TensorFlow quotes it."""
    try:
        yield
    except tf.errors.OpError as error:
        cause = next((failure for failure in _failures if str(failure) in error.message), None)
        if cause is None:
            raise
        raise cause from None
