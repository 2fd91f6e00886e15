"""Folders of checkpoints behind a URL, by TensorFlow's file systems: `gs://`, `s3://` and others."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator

from tfdist.checkpoint.manifest import MANIFEST
from tfdist.checkpoint.place import Place, next_place, read_places


class RemoteStorage:
    """An object store renames no folder at once, so that the manifest, which is written last, makes a checkpoint.

    Where it is removed first, what is left is none any more.
    """

    copies = True

    def __init__(self, folder: str):
        self._folder = folder.rstrip("/")

    def places(self) -> list[Place]:
        with _os_errors() as gfile:
            return [place for place in read_places(self._names(gfile)) if gfile.exists(self._file(place, MANIFEST))]

    def path(self, place: Place) -> str:
        return f"{self._folder}/{place.name}"

    @contextlib.contextmanager
    def open(self, place: Place, name: str):
        with _os_errors() as gfile, gfile.GFile(self._file(place, name), "rb") as stream:
            yield stream

    def size(self, place: Place, name: str) -> int:
        with _os_errors() as gfile:
            return gfile.stat(self._file(place, name)).length

    @contextlib.contextmanager
    def partial(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="tfdist-") as directory:
            yield directory

    def filling(self, directory: str):
        return contextlib.nullcontext()

    def publish(self, directory: str, step: int) -> Place:
        with _os_errors() as gfile:
            place = next_place(step, self._names(gfile))
            try:
                gfile.makedirs(self.path(place))
                for name in sorted(os.listdir(directory), key=MANIFEST.__eq__):
                    gfile.copy(os.path.join(directory, name), self._file(place, name), overwrite=True)
            except BaseException:
                self._remove_quietly(gfile, place)
                raise
        return place

    @contextlib.contextmanager
    def as_local(self, place: Place, names: Iterable[str]) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="tfdist-") as directory:
            with _os_errors() as gfile:
                for name in [*names, MANIFEST]:
                    gfile.copy(self._file(place, name), os.path.join(directory, name))
            yield directory

    def remove(self, place: Place) -> None:
        with _os_errors() as gfile:
            gfile.remove(self._file(place, MANIFEST))
            gfile.rmtree(self.path(place))

    def clear(self) -> None:
        with _os_errors() as gfile:
            for place in read_places(self._names(gfile)):
                if not gfile.exists(self._file(place, MANIFEST)):
                    self._remove_quietly(gfile, place)

    def remove_folder(self) -> None:
        with contextlib.suppress(OSError), _os_errors() as gfile:
            if not self._names(gfile):
                gfile.rmtree(self._folder)

    def _names(self, gfile):
        try:
            return [name.rstrip("/") for name in gfile.listdir(self._folder)]
        except _not_found():
            if gfile.exists(self._folder):  # `listdir` takes every trouble for an absent folder
                raise
            return []

    def _file(self, place, name):
        return f"{self.path(place)}/{name}"

    def _remove_quietly(self, gfile, place):
        with contextlib.suppress(OSError), _os_errors():
            gfile.rmtree(self.path(place))


@contextlib.contextmanager
def _os_errors():
    """TensorFlow's `gfile`, whose errors become OSErrors, as those of local files are."""
    import tensorflow as tf

    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
    except tf.errors.OpError as error:
        raise OSError(error.message or type(error).__name__) from error


def _not_found():
    import tensorflow as tf

    return tf.errors.NotFoundError
