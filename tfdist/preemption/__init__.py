"""Notices that this machine goes away: signals, files, and what cloud machines say of themselves."""

from tfdist.preemption.door import leaving_when_told
from tfdist.preemption.listener import SIGNALS, Listener, Notice, StopWatching, Watcher
from tfdist.preemption.metadata import AwsMetadata, GceMetadata
from tfdist.preemption.watchers import FileAppears, read_watcher

__all__ = [
    "SIGNALS",
    "AwsMetadata",
    "FileAppears",
    "GceMetadata",
    "Listener",
    "Notice",
    "StopWatching",
    "Watcher",
    "leaving_when_told",
    "read_watcher",
]
