"""A bound on TensorFlow's own start: it names who does not take part, and ends the process in time.

While TensorFlow connects to its peers it holds Python's global lock (`TFE_EnableCollectiveOps` in TensorFlow 2.21),
so no thread of Python's runs and no signal is handled. Two things work all the same: a timer of the C library that
ends the process, and a second process that watches the peers.
"""

import contextlib
import ctypes
import pathlib
import subprocess
import sys

from tfdist.cluster import Cluster
from tfdist.cluster.address import split_address
from tfdist.errors import PEER_MISSING

_WATCH = str(pathlib.Path(__file__).with_name("watch.py"))
_CLOCK_MONOTONIC, _SIGEV_THREAD = 1, 2


@contextlib.contextmanager
def time_limit(cluster: Cluster, seconds: float):
    """Ends the process with code 69 if the block takes longer than `seconds`.

    After a few seconds, and at the end, standard error says which peers do not answer.
    """
    watch = _start_watch(cluster, seconds)
    try:
        # The watch has the last word, so it ends a moment earlier.
        with _exit_timer(seconds + 1, PEER_MISSING):
            yield
    finally:
        watch.stdin.close()
        watch.kill()
        watch.wait()


def _start_watch(cluster, seconds):
    peers = {name: split_address(address) for name, address in cluster.peers.items()}
    triples = [text for name, (host, port) in peers.items() for text in (name, host, str(port))]
    command = [sys.executable, "-S", "-E", _WATCH, str(seconds), *triples]
    # Its standard input ends when this process does, and with it the watch.
    return subprocess.Popen(command, stdin=subprocess.PIPE)


class _Sigevent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("rest", ctypes.c_char * 40),
    )


class _Timerspec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns"))


@contextlib.contextmanager
def _exit_timer(seconds, code):
    """Has the C library call `_exit(code)` after `seconds`, in a thread of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "timer_create"):  # not Linux: the block is watched, but not ended
        yield
        return
    function = ctypes.cast(libc._exit, ctypes.c_void_p)
    event = _Sigevent(value=code, notify=_SIGEV_THREAD, function=function)
    timer = ctypes.c_void_p()
    if libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create failed")
    libc.timer_settime(timer, 0, ctypes.byref(_Timerspec(0, 0, int(seconds), int(seconds % 1 * 1e9))), None)
    try:
        yield
    finally:
        libc.timer_delete(timer)
