"""Metric output: one small interface, its writers, and many in one."""

import os
from collections.abc import Iterable

from tfdist.errors import ConfigError
from tfdist.fields import nearest
from tfdist.writers.tensorboard import TensorBoardWriter
from tfdist.writers.text import ConsoleWriter, JsonlWriter
from tfdist.writers.writer import ManyWriter, Writer

__all__ = ["ConsoleWriter", "JsonlWriter", "ManyWriter", "TensorBoardWriter", "Writer", "make_writer"]

_MAKERS = {
    "jsonl": lambda workdir: JsonlWriter(os.path.join(workdir, "metrics.jsonl")),
    "tensorboard": lambda workdir: TensorBoardWriter(os.path.join(workdir, "tensorboard")),
    "console": lambda workdir: ConsoleWriter(),
}


def make_writer(names: Iterable[str], workdir: str) -> Writer:
    """One writer for all of `names` (jsonl, tensorboard, console), into `workdir`. Raises: ConfigError."""
    for name in names:
        if name not in _MAKERS:
            raise ConfigError(f"Writer {name!r}: {nearest(name, _MAKERS)}")
    return ManyWriter(*(_MAKERS[name](workdir) for name in names))
