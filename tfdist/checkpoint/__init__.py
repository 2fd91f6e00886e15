"""Checkpoints on disk: written whole or not at all, verified when they are read."""

from tfdist.checkpoint.folder import Checkpoints, Found
from tfdist.checkpoint.interval import (
    Auto,
    EveryEpochs,
    EverySeconds,
    EverySteps,
    Interval,
    read_interval,
    read_seconds,
    young_daly,
)
from tfdist.checkpoint.manifest import FORMAT, MANIFEST, Manifest
from tfdist.checkpoint.retention import Retention
from tfdist.checkpoint.saver import Saver

__all__ = [
    "FORMAT",
    "MANIFEST",
    "Auto",
    "Checkpoints",
    "EveryEpochs",
    "EverySeconds",
    "EverySteps",
    "Found",
    "Interval",
    "Manifest",
    "Retention",
    "Saver",
    "read_interval",
    "read_seconds",
    "young_daly",
]
