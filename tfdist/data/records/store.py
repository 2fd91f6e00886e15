"""What was found in a file, kept in a file beside it or in another folder, so that it is found once.

A line of JSON that tells what it belongs to, and the arrays. It is renamed into place whole, since several workers may
write it at the same time.
"""

import contextlib
import hashlib
import json
import logging
import os
import uuid

import google_crc32c
import numpy as np
import tensorflow as tf

from tfdist.data.records.files import ERRORS, INDEX_SUFFIX, Stamp
from tfdist.data.records.walk import Walked
from tfdist.errors import DataError

_log = logging.getLogger(__name__)

_FORMAT = 2
_ARRAYS = {"offsets": "<i8", "crcs": "<u4", "damaged": "<i8"}


class Store:
    """Where the index of one file may lie, in the order in which the places are tried."""

    def __init__(self, path: str, index_dir: str | os.PathLike | None):
        self._path, self._asked = path, index_dir is not None
        if index_dir is not None:
            self._places = [_in_folder(os.fspath(index_dir), path)]
        else:
            folder, slash, name = path.rpartition("/")
            cache = os.path.expanduser("~/.cache/tfdist")
            self._places = [f"{folder}{slash}.{name}{INDEX_SUFFIX}", _in_folder(cache, path)]

    def load(self, stamp: Stamp, verified: bool) -> Walked | None:
        """What is known of the file with that stamp; None if that is nothing, or if it is of another file.

        Args:
            verified: whether damaged records are to be left out: what is found then differs.
        """
        for place in self._places:
            with contextlib.suppress(*ERRORS, ValueError, KeyError, TypeError, RecursionError):
                walked = _decoded(tf.io.gfile.GFile(place, "rb").read(), self._identity(stamp))
                if walked.verified == verified or (walked.verified and walked.whole):
                    return walked
        return None

    def save(self, stamp: Stamp, walked: Walked):
        """Keeps it in the first place that can be written. Raises DataError if that was asked for and cannot be."""
        parts = _encoded(walked, self._identity(stamp))
        problems = []
        for place in self._places:
            problem = _write(place, parts)
            if problem is None:
                return
            problems.append(problem)
        if self._asked:
            raise DataError(f"The index of {self._path} cannot be kept: {problems[0]}. Give an index_dir to write in.")
        _log.info("The index of %s is kept nowhere, so each run makes it again: %s", self._path, "; ".join(problems))

    def _identity(self, stamp: Stamp) -> dict:
        name = self._path.rpartition("/")[2]
        return {"format": _FORMAT, "file": name, "size": stamp.size, "modified": stamp.modified}


def _in_folder(folder: str, path: str) -> str:
    name = path.rpartition("/")[2]
    digest = hashlib.blake2b(path.encode(), digest_size=8).hexdigest()
    return f"{folder}/{name}-{digest}{INDEX_SUFFIX}"


def _encoded(walked: Walked, identity: dict) -> tuple[bytes, ...]:
    arrays = [getattr(walked, name).astype(kind, copy=False).tobytes() for name, kind in _ARRAYS.items()]
    header = {
        "identity": identity,
        "found": {"verified": walked.verified, "lost": walked.lost},
        "bytes": [len(array) for array in arrays],
        "crc": [google_crc32c.value(array) for array in arrays],
    }
    return json.dumps(header).encode() + b"\n", *arrays


def _decoded(data: bytes, identity: dict) -> Walked:
    """Raises ValueError or KeyError for anything but a whole index with that identity."""
    at = data.index(b"\n") + 1
    header = json.loads(data[:at])
    if header["identity"] != identity:
        raise ValueError("an index of another file")
    arrays: dict = {}
    for (name, kind), size, crc in zip(_ARRAYS.items(), header["bytes"], header["crc"], strict=True):
        part = data[at : at + size]
        if len(part) != size or google_crc32c.value(part) != crc:
            raise ValueError("a damaged index")
        arrays[name] = np.frombuffer(part, kind).astype(kind[1:], copy=False)
        at += size
    return Walked(**arrays, **header["found"])


def _write(place: str, parts: tuple[bytes, ...]) -> str | None:
    """Writes the file whole or not at all. Returns: why it cannot be written, or None."""
    scratch = f"{place.removesuffix(INDEX_SUFFIX)}-{uuid.uuid4().hex}{INDEX_SUFFIX}"
    try:
        tf.io.gfile.makedirs(place.rpartition("/")[0])
        with tf.io.gfile.GFile(scratch, "wb") as file:
            for part in parts:
                file.write(part)
        tf.io.gfile.rename(scratch, place, overwrite=True)
    except ERRORS as error:
        with contextlib.suppress(*ERRORS):
            tf.io.gfile.remove(scratch)
        return str(error)
    return None
