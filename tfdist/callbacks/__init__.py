"""Keras callbacks, usable in `tfdist.fit` and in plain `keras.Model.fit`."""

from tfdist.callbacks.backup import BackupAndRestore
from tfdist.callbacks.metrics_writer import MetricsWriter
from tfdist.callbacks.rollback import RollbackOnSpike
from tfdist.callbacks.warm_up import WarmUp

__all__ = ["BackupAndRestore", "MetricsWriter", "RollbackOnSpike", "WarmUp"]
