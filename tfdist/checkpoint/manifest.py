"""The manifest of a checkpoint: what it is, and the sizes and checksums by which its files are known to be whole.

It is JSON for people to read, whose first line is the CRC-32C of all that follows. This line stays as it is in all
formats, so that a manifest of a later format is told from a damaged one.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import math
import operator
import os
import platform
import re
import sys
from collections.abc import Mapping
from typing import Any

import google_crc32c

from tfdist.checkpoint.checksums import FileFacts
from tfdist.errors import CheckpointError

FORMAT = 1
MANIFEST = "manifest.json"
_HEAD = re.compile(rb'\{"crc32c": "([0-9a-f]{8})",\n')
_LIBRARIES = ("tensorflow", "keras", "numpy")


class DamageError(Exception):
    """A checkpoint is not what was committed; the text says in what."""


class NewerFormatError(CheckpointError):
    """A checkpoint that a later tfdist has written."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What is known of a checkpoint without opening its other files.

    Attributes:
        step: optimizer steps of the whole training.
        time: of the commit, in seconds since 1970.
        versions: of Python and of the libraries that were loaded.
        progress: where the training was; JSON values.
        metrics: by name; NaN and infinities are kept.
        arrays: by name `{"shape": [...], "dtype": "..."}`.
        files: by name, without this manifest.
    """

    step: int
    time: float
    versions: dict[str, str]
    progress: dict[str, Any]
    metrics: dict[str, float]
    arrays: Mapping[str, Mapping[str, Any]]
    files: dict[str, FileFacts]

    def encode(self) -> bytes:
        """The content of the file."""
        fields = {"format": FORMAT, **dataclasses.asdict(self)}
        fields["metrics"] = {name: _for_json(float(value)) for name, value in self.metrics.items()}
        body = json.dumps(fields, indent=1, default=operator.methodcaller("item"))[1:].encode()
        return b'{"crc32c": "%08x",' % google_crc32c.value(body) + body

    @classmethod
    def decode(cls, content: bytes) -> "Manifest":
        """The manifest in a file.

        Raises: DamageError if it is not exactly what `encode` gave; NewerFormatError for one of a later format.
        """
        head = _HEAD.match(content)
        if head is None or int(head[1], 16) != google_crc32c.value(content[head.end() - 1 :]):
            raise DamageError(f"{MANIFEST} is damaged")
        fields = json.loads(content)
        if fields["format"] > FORMAT:
            raise NewerFormatError(
                f"format {fields['format']} of a checkpoint: this tfdist reads formats up to {FORMAT}. Update tfdist."
            )
        return cls._from_fields(fields)

    @classmethod
    def _from_fields(cls, fields):
        fields["metrics"] = {name: float(value) for name, value in fields["metrics"].items()}
        fields["files"] = {name: FileFacts(**facts) for name, facts in fields["files"].items()}
        if any(name != os.path.basename(name) for name in fields["files"]):
            raise DamageError(f"{MANIFEST} names files of other folders")
        return cls(**{field.name: fields[field.name] for field in dataclasses.fields(cls)})


def read_versions() -> dict[str, str]:
    """Versions of Python, of tfdist if it is installed, and of those libraries that this process has loaded."""
    versions = {"python": platform.python_version()}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions["tfdist"] = importlib.metadata.version("tfdist")
    return versions | {name: sys.modules[name].__version__ for name in _LIBRARIES if name in sys.modules}


def _for_json(value):
    return value if math.isfinite(value) else str(value)
