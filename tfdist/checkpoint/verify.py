"""Whether a checkpoint is what was committed."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import BinaryIO

from tfdist.checkpoint.checksums import FileFacts, read_facts
from tfdist.checkpoint.manifest import MANIFEST, DamageError, Manifest, NewerFormatError
from tfdist.checkpoint.place import Place
from tfdist.checkpoint.storage import Storage


def read_manifest(storage: Storage, place: Place) -> Manifest:
    """The manifest of a checkpoint, whose files have the sizes that it says; their contents are not read.

    Raises: DamageError; NewerFormatError.
    """
    try:
        with storage.open(place, MANIFEST) as stream:
            manifest = Manifest.decode(stream.read())
    except OSError as error:
        raise DamageError(f"{MANIFEST}: {reason(error)}") from error
    except NewerFormatError as error:
        raise NewerFormatError(f"{storage.path(place)}: {error}") from None
    if manifest.step != place.step:
        raise DamageError(f"{MANIFEST} is of step {manifest.step}")
    _check_sizes(storage, place, manifest)
    return manifest


def check_contents(open_file: Callable[[str], AbstractContextManager[BinaryIO]], manifest: Manifest) -> None:
    """Reads all files, each opened by its name. Raises: DamageError if one is not what the manifest says."""
    for name, facts in manifest.files.items():
        try:
            with open_file(name) as stream:
                found = read_facts(stream)
        except OSError as error:
            raise DamageError(f"{name}: {reason(error)}") from error
        if found != facts:
            raise DamageError(f"{name} is damaged: its checksum is {found.crc32c:08x}, not {facts.crc32c:08x}")


def files_in(directory: str) -> dict[str, FileFacts]:
    """The facts of all files of a local directory, read back from it. Raises: OSError."""
    facts = {}
    for name in sorted(os.listdir(directory)):
        with open_in(directory, name) as stream:
            facts[name] = read_facts(stream)
    return facts


def open_in(directory: str, name: str) -> BinaryIO:
    """A file of a local directory, to be read. Raises: OSError."""
    return open(os.path.join(directory, name), "rb")


def reason(error: OSError) -> str:
    """What an OSError says, without the path."""
    return error.strerror or str(error)


def _check_sizes(storage, place, manifest):
    for name, facts in manifest.files.items():
        try:
            size = storage.size(place, name)
        except OSError as error:
            raise DamageError(f"{name}: {reason(error)}") from error
        if size != facts.size:
            raise DamageError(f"{name} has {size} bytes, not {facts.size}")
