"""Signals while there is nothing to save."""

import signal

from tfdist.errors import PREEMPTED
from tfdist.preemption.ending import end_process
from tfdist.preemption.listener import SIGNALS
from tfdist.preemption.signals import Signals


def leaving_when_told() -> Signals:
    """A context manager; in it SIGTERM, SIGUSR1 and SIGINT end the process at once, with code 75: run it again.

    For the time before and after a training; a `Listener` entered inside of it hears the signals instead.
    """
    return Signals(SIGNALS, _leave)


def _leave(signum):
    name = signal.Signals(signum).name
    end_process(PREEMPTED, f"{name}: there is nothing to save, so the process ends at once, with code {PREEMPTED}.")
