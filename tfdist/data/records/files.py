"""Files that are found by a glob and read at any offset, on this machine or through `tf.io.gfile`."""

import os
import threading
import weakref
from typing import NamedTuple

import tensorflow as tf

from tfdist.errors import DataError

INDEX_SUFFIX = ".tfdist-index"
ERRORS = (OSError, tf.errors.OpError)
"""What reading a file may raise, by way of Python or of `tf.io.gfile`."""


class Stamp(NamedTuple):
    """What tells that a file is still the one that it was."""

    size: int
    modified: int  # ns


def find_files(patterns) -> tuple[str, ...]:
    """The files of a path, a glob, or a sequence of them: sorted, each once, without the indices that lie beside them.

    Raises:
        DataError: nothing found for a pattern, a folder, or anything but strings and paths.
    """
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    try:
        texts = [os.fspath(pattern) for pattern in patterns]
    except TypeError:
        texts = []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise DataError(f"from_tfrecords({patterns!r:.80}): no files. Give a path, a glob or a list of them.")
    return tuple(sorted({path for text in texts if not _is_index(text) for path in _matches(text)}))


def _is_index(path: str) -> bool:
    return path.endswith(INDEX_SUFFIX)


def _matches(pattern: str) -> list[str]:
    pattern = pattern if is_remote(pattern) else os.path.abspath(pattern.removeprefix("file://"))
    try:
        paths = [pattern] if tf.io.gfile.exists(pattern) else tf.io.gfile.glob(pattern)
        paths = [path for path in paths if not _is_index(path)]
        folders = [path for path in paths if tf.io.gfile.isdir(path)]
    except ERRORS as error:
        raise DataError(f"{pattern} cannot be looked up: {error}") from error
    if folders or not paths:
        problem = f"{folders[0]} is a folder" if folders else f"no file matches {pattern}"
        raise DataError(f"{problem}: TFRecord files are needed, as a path or a glob such as data/train-*.tfrecord.")
    return paths


def is_remote(path: str) -> bool:
    """Whether only `tf.io.gfile` can read it."""
    return "://" in path.removeprefix("file://")


def open_file(path: str) -> "LocalFile | RemoteFile":
    """The file, open for reading at any offset by any thread; it closes by itself when it is let go."""
    return RemoteFile(path) if is_remote(path) else LocalFile(path)


class LocalFile:
    """A file of this machine; threads read it at the same time."""

    def __init__(self, path: str):
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor).atexit = False

    def stamp(self) -> Stamp:
        """Its size and time now. Raises FileNotFoundError if it was deleted or replaced."""
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise FileNotFoundError("the file was deleted or replaced by another one")
        return Stamp(status.st_size, status.st_mtime_ns)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes of `[offset, offset + size)`, fewer where the file ends."""
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size and (more := os.pread(self._descriptor, size - len(data), offset + len(data))):
            data += more
        return data


class RemoteFile:
    """A file of any file system of TensorFlow; threads take turns."""

    def __init__(self, path: str):
        status = tf.io.gfile.stat(path)
        self._stamp = Stamp(status.length, status.mtime_nsec)
        self._file = tf.io.gfile.GFile(path, "rb")
        self._lock = threading.Lock()

    def stamp(self) -> Stamp:
        """Its size and time when it was opened: to ask for each read would cost as much as the read."""
        return self._stamp

    def read(self, offset: int, size: int) -> bytes:
        """The bytes of `[offset, offset + size)`, fewer where the file ends."""
        with self._lock:
            self._file.seek(offset)
            return self._file.read(size)
