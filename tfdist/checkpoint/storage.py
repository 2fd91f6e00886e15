"""Folders of checkpoints on a file system of this machine, and how one becomes visible there at once."""

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Protocol

from tfdist.checkpoint.flush import flushing, sync
from tfdist.checkpoint.place import Place, next_place, read_places

_PARTIAL = ".partial-"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Storage(Protocol):
    """Where checkpoints lie. All methods raise OSError; a folder that is not there is an empty one."""

    copies: bool
    """Whether `as_local` gives a copy."""

    def places(self) -> list[Place]:
        """What is committed, in order."""

    def path(self, place: Place) -> str:
        """For people, and for other tools."""

    def open(self, place: Place, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """A file of a checkpoint, to be read."""

    def size(self, place: Place, name: str) -> int:
        """Bytes of a file."""

    def partial(self) -> contextlib.AbstractContextManager[str]:
        """A new local directory to write a checkpoint to; nothing is left of it afterwards, unless published."""

    def filling(self, directory: str) -> contextlib.AbstractContextManager[None]:
        """Lasts while files are written into `directory`, to bring them to the disk beside it where that saves time."""

    def publish(self, directory: str, step: int) -> Place:
        """Makes what is in `directory` a checkpoint, wholly or not at all."""

    def as_local(self, place: Place, names: Iterable[str]) -> contextlib.AbstractContextManager[str]:
        """A local directory with the files `names` of a checkpoint."""

    def remove(self, place: Place) -> None:
        """Removes a checkpoint, which from the first moment on is none."""

    def clear(self) -> None:
        """Removes, as far as it can, what killed processes have left."""

    def remove_folder(self) -> None:
        """Removes the folder if nothing is in it."""


def make_storage(path: str) -> Storage:
    """The storage at a local path, or at any URL that TensorFlow's file systems know."""
    if not _URL.match(path):
        return LocalStorage(path)
    from tfdist.checkpoint.remote import RemoteStorage

    return RemoteStorage(path)


class LocalStorage:
    """A checkpoint is written beside the others under another name, brought to the disk, and then renamed."""

    copies = False

    def __init__(self, folder: str):
        self._folder = folder

    def places(self) -> list[Place]:
        """What has the name of a checkpoint: only whole ones ever get one."""
        return read_places(self._names())

    def path(self, place: Place) -> str:
        return os.path.join(self._folder, place.name)

    def open(self, place: Place, name: str):
        return open(os.path.join(self.path(place), name), "rb")

    def size(self, place: Place, name: str) -> int:
        return os.stat(os.path.join(self.path(place), name)).st_size

    @contextlib.contextmanager
    def partial(self) -> Iterator[str]:
        os.makedirs(self._folder, exist_ok=True)
        directory = self._hidden()
        os.mkdir(directory)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def filling(self, directory: str):
        return flushing(directory)

    def publish(self, directory: str, step: int) -> Place:
        place = next_place(step, self._names())
        for entry in os.scandir(directory):
            sync(entry.path)
        _sync_directory(directory)
        os.rename(directory, self.path(place))
        _sync_directory(self._folder)
        _sync_directory(os.path.dirname(os.path.abspath(self._folder)))
        return place

    @contextlib.contextmanager
    def as_local(self, place: Place, names: Iterable[str]) -> Iterator[str]:
        yield self.path(place)

    def remove(self, place: Place) -> None:
        hidden = self._hidden()
        os.rename(self.path(place), hidden)
        _remove(hidden)

    def clear(self) -> None:
        for name in self._names():
            if name.startswith(_PARTIAL):
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)

    def remove_folder(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)

    def _names(self):
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []

    def _hidden(self):
        # Names that nobody else has: a process believed dead may still be writing.
        return os.path.join(self._folder, _PARTIAL + uuid.uuid4().hex)


def _remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def _sync_directory(path):
    with contextlib.suppress(OSError):  # some network file systems cannot sync a directory, and need not
        sync(path)
