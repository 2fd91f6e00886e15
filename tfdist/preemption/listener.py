"""Notices that this machine goes away, from signals and from watchers, as a flag that a loop looks at."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tfdist.errors import PREEMPTED, ConfigError
from tfdist.preemption.ending import end_process, say
from tfdist.preemption.signals import Signals

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# Launchers and terminals deliver one signal twice: to the process, and to its group.
_SAME_SIGNAL_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Notice(NamedTuple):
    """That this machine goes away: why ("SIGTERM", or a watcher's words), and when it was heard (`time.time()`)."""

    reason: str
    time: float


class Watcher(Protocol):
    """Something outside of the process that knows when its machine goes away."""

    def look(self) -> str | None:
        """Whether it does, in a few words. Called every few seconds in a thread of its own; may take seconds.

        Raises: StopWatching with the reason if there is nothing to ask here.
        """


class StopWatching(Exception):
    """A watcher has nothing to ask on this machine."""


class Listener:
    """A context manager; while it is entered, `notice` says whether this machine was told to go.

    SIGTERM, SIGUSR1 and SIGINT, or what a watcher sees, set `notice`, once, also while the main thread is in a call of
    TensorFlow's, and nothing else: to stop and to save is the loop's part. The exceptions end the process:

    * a second signal, later than a second after the first, at once with code 128 + its number. SIGUSR1 and watchers
      announce, so that the first other signal after them, with which a scheduler goes on, is not a second one;
    * `grace` seconds after the notice, if the listener is still entered, with code 75, a moment before they are over:
      what is committed until then stands.

    In a thread other than the main one signals are left alone and watchers work.

    Args:
      watchers: see `Watcher`; one that fails is named in the log and asked no more.
      grace: seconds from a notice to the end of the machine.
      on_deadline: called before the process ends with code 75, in a thread, for a second at most: to say what was
        not reached.
      signals: the numbers of the signals to hear.
      poll_seconds: between two looks of a watcher.
    Raises: ConfigError if `grace` or `poll_seconds` is not above 0.
    """

    def __init__(
        self,
        watchers: Sequence[Watcher] = (),
        grace: float = 30.0,
        on_deadline: Callable[[], None] | None = None,
        signals: Sequence[int] = SIGNALS,
        poll_seconds: float = 2.0,
    ):
        for name, value in (("grace", grace), ("poll_seconds", poll_seconds)):
            if not 0 < value < threading.TIMEOUT_MAX:
                raise ConfigError(f"{name}={value} is no time to wait; it is above 0, in seconds. Give for example 30.")
        self.notice: Notice | None = None
        self._watchers, self._poll_seconds = tuple(watchers), poll_seconds
        self._grace, self._on_deadline = grace, on_deadline
        self._signals = Signals(signals, self._heard)
        self._lock = threading.Lock()

    def __enter__(self):
        self.notice = None
        self._first: tuple[int, float] | None = None
        self._left = threading.Event()
        self._timer: threading.Timer | None = None
        self._signals.__enter__()
        for watcher in self._watchers:
            threading.Thread(target=self._watch, args=(watcher, self._left), daemon=True).start()
        return self

    def __exit__(self, *error):
        self._signals.__exit__(*error)
        with self._lock:
            self._left.set()
            if self._timer:
                self._timer.cancel()

    def _heard(self, signum):
        name, now = signal.Signals(signum).name, time.monotonic()
        announced = self._first is not None and self._first[0] == signal.SIGUSR1 != signum
        if self._first is None or announced:
            self._first = (signum, now)
            self._take(name, self._left)
        elif now - self._first[1] > _SAME_SIGNAL_SECONDS:
            end_process(128 + signum, f"{name}, a second signal: the process ends at once, and saves nothing more.")

    def _take(self, reason, left):
        with self._lock:
            if self.notice or left.is_set():
                return
            self.notice = Notice(reason, time.time())
            # A moment for the last words, and for this process to be gone before others count it as lost.
            self._timer = threading.Timer(self._grace - min(1.0, self._grace / 10), self._end, (reason, left))
            self._timer.daemon = True
            self._timer.start()
        say(
            f"{reason}: this machine goes away. All workers stop at the same step, save and leave with code "
            f"{PREEMPTED}, within {self._grace:g} s. A second signal ends this process at once."
        )

    def _end(self, reason, left):
        if not left.is_set():
            what = f"{reason} was {self._grace:g} s ago, and the training has not come to its end."
            message = f"{what} The process ends with code {PREEMPTED}; the last committed checkpoint stands."
            end_process(PREEMPTED, message, self._on_deadline)

    def _watch(self, watcher, left):
        try:
            while not (reason := watcher.look()):
                if left.wait(self._poll_seconds):
                    return
        except StopWatching as stop:
            _log.warning(f"{stop}")
        except Exception:
            _log.exception(f"{watcher!r} failed, and watches no more; signals are heard as before.")
        else:
            self._take(reason, left)
