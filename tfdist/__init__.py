"""Train Keras 3 models with `tf.distribute`: on one device, several devices, several workers.

The public names below are imported when they are first used, so that `import tfdist` does not start TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING

from tfdist.errors import (
    BatchError,
    CheckpointError,
    ClusterError,
    ConfigError,
    DataError,
    LossError,
    PeerLostError,
    Preempted,
    TfdistError,
    UnsupportedError,
    UserError,
)

if TYPE_CHECKING:
    from tfdist import callbacks, data, schedules, writers
    from tfdist.cluster import Cluster
    from tfdist.environments import read_cluster
    from tfdist.loop import enable_model_fit, evaluate, fit, predict
    from tfdist.strategy import make_strategy

_HOMES = {
    "Cluster": "tfdist.cluster",
    "read_cluster": "tfdist.environments",
    "make_strategy": "tfdist.strategy",
    "fit": "tfdist.loop",
    "evaluate": "tfdist.loop",
    "predict": "tfdist.loop",
    "enable_model_fit": "tfdist.loop",
}
_MODULES = ("callbacks", "data", "schedules", "writers")

__all__ = [
    "BatchError",
    "CheckpointError",
    "Cluster",
    "ClusterError",
    "ConfigError",
    "DataError",
    "LossError",
    "PeerLostError",
    "Preempted",
    "TfdistError",
    "UnsupportedError",
    "UserError",
    "callbacks",
    "data",
    "enable_model_fit",
    "errors",
    "evaluate",
    "fit",
    "make_strategy",
    "predict",
    "read_cluster",
    "schedules",
    "writers",
]


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"tfdist.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tfdist' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
