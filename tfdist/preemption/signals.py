"""Signals that are heard at once, whatever the main thread is doing.

Python runs its handlers in the main thread, between two of its instructions; a traced TensorFlow call is one, of
minutes at the first compilation. The wake-up descriptor (`signal.set_wakeup_fd`) is written to by the C handler itself,
and a thread reads it.
"""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence

_log = logging.getLogger(__name__)
_END = b"\0"  # no signal has this number
_caught: list["Signals"] = []
_held_back = threading.local()


class Signals:
    """A context manager: while it is entered, `heard(signum)` is called in a thread of its own for each of `signals`.

    Nothing else happens on them. Those that this process was started to ignore stay ignored (a job in the background
    of a shell ignores the Ctrl-C that is meant for others). It leaves handlers and descriptor as they were, and they
    nest: the innermost one hears. Outside of the main thread, where Python cannot set handlers, it does nothing but
    say so.
    """

    def __init__(self, signals: Sequence[int], heard: Callable[[int], None]):
        self._signals = tuple(signals)
        self._heard = heard

    def __enter__(self):
        self._works = threading.current_thread() is threading.main_thread()
        if not self._works:
            _log.warning("Not in the main thread: signals are left alone, and a preemption is not noticed by them.")
            return self
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._outer = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="tfdist-signals", daemon=True)
        self._thread.start()
        wanted = [number for number in self._signals if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, _noted) for number in wanted}
        _caught.append(self)
        return self

    def __exit__(self, *error):
        if not self._works:
            return
        _caught.remove(self)
        self._restore()
        os.write(self._writer, _END)
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)

    def _restore(self):
        """Descriptor first: a signal in between is the outer one's."""
        signal.set_wakeup_fd(self._outer)
        for number, handler in self._before.items():
            if signal.getsignal(number) is _noted:  # else somebody has set another one since, and wants to keep it
                # None is a handler that was not set by Python, and cannot be set again by it. TensorFlow's server sets
                # one, which swallows SIGTERM.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _listen(self):
        while (number := os.read(self._reader, 1)) != _END:
            if number[0] in self._signals:
                self._heard(number[0])
            elif self._outer >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._outer, number)


def _noted(signum, frame):
    """The handler in Python: to have one is what makes Python write to the descriptor."""


def _hold_back():
    """A signal to a child that has not forgotten yet is for that child."""
    if _caught:
        numbers = {number for signals in _caught for number in signals._before}
        _held_back.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def _let_through():
    if (mask := _held_back.__dict__.pop("mask", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget_in_child():
    """A forked child would tell its parent of the signals that the child gets, and could not be terminated itself."""
    while _caught:
        _caught.pop()._restore()
    _let_through()


os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_forget_in_child)
