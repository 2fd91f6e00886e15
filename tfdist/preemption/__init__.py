"""Notices that this machine goes away: signals, files, and what cloud machines say of themselves."""

from tfdist.preemption.door import leaving_when_told
from tfdist.preemption.listener import SIGNALS, Listener, Notice, StopWatching, Watcher

__all__ = ["SIGNALS", "Listener", "Notice", "StopWatching", "Watcher", "leaving_when_told"]
