"""Policy FILE: the files that a data set reads, dealt to the workers."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
import os

import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat.dataset_files import FileList, batching_of, check_divisible, string_lists, with_files
from tfdist.compat.datasets import dataset_of
from tfdist.data.streams.own import OwnStream
from tfdist.data.streams.plan import plan_files
from tfdist.data.streams.stream import OfDataset
from tfdist.errors import DataError

_log = logging.getLogger(__name__)
_AT_A_TIME = 16
"""Sizes asked for at a time."""


@dataclasses.dataclass(frozen=True, eq=False)
class FileStream(OfDataset, OwnStream):
    """A `tf.data.Dataset` over files, of which each worker reads its own."""

    dataset: tf.data.Dataset

    def identity(self):
        files = sorted((os.path.basename(name), size) for name, size in zip(self._files.names, self._sizes))
        rows = batching_of(self._graph).rows
        digest = hashlib.blake2b(repr(files).encode(errors="surrogateescape"), digest_size=8).hexdigest()
        return super().identity() | {
            "files": len(files),
            "bytes": sum(self._sizes),
            "names and bytes": digest,
            "rows": rows,
        }

    def _read_by(self, share: Share) -> tf.data.Dataset:
        if share.workers == 1:
            return self.dataset
        batching = batching_of(self._graph)
        check_divisible(self._graph, self._files, batching)
        plan = plan_files(self._files.names, self._sizes, share.workers, batching.rows)
        _log.info("%s", plan)
        own = with_files(self._graph, self._files, plan.files[share.worker], batching, plan.rows[share.worker])
        return dataset_of(own, self.dataset.element_spec)

    @functools.cached_property
    def _files(self) -> FileList:
        """Raises DataError unless the data set names its files in one list."""
        existing = [strings for strings in string_lists(self._graph) if strings.names and _exists(strings.names[0])]
        # Names that are sliced together, of images and masks say, are one list.
        found = list({strings.reader: strings for strings in reversed(existing)}.values())
        if len(found) != 1:
            raise DataError(
                f"Policy FILE, but the data set has {len(found)} lists of files where one is needed, such as "
                "`tf.data.TFRecordDataset(paths)` or `list_files(pattern)` has it. Hand over a function of the "
                "tf.distribute.InputContext, or leave the policy at AUTO."
            )
        return found[0]

    @functools.cached_property
    def _sizes(self) -> list[int]:
        with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
            return list(pool.map(_size, self._files.names))


def _exists(name: str) -> bool:
    return bool(name) and tf.io.gfile.exists(name) and not tf.io.gfile.isdir(name)


def _size(name: str) -> int:
    try:
        return tf.io.gfile.stat(name).length
    except tf.errors.OpError as error:
        raise DataError(f"{name}: the data set names this file, but it cannot be read: {error.message}.") from error
