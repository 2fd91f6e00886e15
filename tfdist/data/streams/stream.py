"""What all data of `tf.data.Dataset`s has in common."""

import abc
import dataclasses
import functools
import logging

import tensorflow as tf

from tfdist.compat.dataset_files import rows_per_batch
from tfdist.compat.datasets import graph_of
from tfdist.data.base import Data
from tfdist.data.streams.rows import any_rows, with_rows
from tfdist.errors import BatchError, DataError

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Stream(Data):
    """Batches in the order in which some data set yields them. Each epoch is a new iteration of it.

    `fingerprints`: whether ids are hashes of what the rows hold, rather than a count within the batch. A row that is
    padded to the width of its batch has another hash in a batch of another width.
    """

    fingerprints: bool = False

    @abc.abstractmethod
    def _raw_spec(self):
        """The data set's element spec."""

    @abc.abstractmethod
    def _epoch(self, epoch: int, share) -> tf.data.Dataset:
        """The data set that a worker iterates, in the state in which it yields that epoch."""

    @abc.abstractmethod
    def _cardinality(self) -> int | None:
        """Global batches in an epoch, None if that is unknown or endless."""

    @property
    def examples(self) -> None:
        """None: a data set counts its batches, not their rows."""

    @property
    def element_spec(self):
        return tf.nest.map_structure(any_rows, self._raw_spec())

    @property
    def fewest_rows(self):
        rows = {spec.shape[0] for spec in tf.nest.flatten(self._raw_spec()) if isinstance(spec, tf.TensorSpec)}
        return max((count for count in rows if count is not None and not self.shares_rows), default=1)

    def identity(self):
        return {"batch": str(self.element_spec), "steps": str(self._cardinality())}

    def with_ids(self) -> "Stream":
        return dataclasses.replace(self, fingerprints=True)

    def steps_per_epoch(self, batch_size=None, drop_remainder=False) -> int | None:
        """The data set's cardinality, in batches."""
        if batch_size is not None or drop_remainder:
            raise BatchError(
                f"batch_size={batch_size}, drop_remainder={drop_remainder}: a tf.data.Dataset comes in global "
                "batches already. Leave both out, and say `dataset.batch(size, drop_remainder=...)`."
            )
        return self._cardinality()

    def worker_batches(self, batch_size, share, *, first_step=0, first_epoch=0, drop_remainder=False, repeat=False):
        steps = self.steps_per_epoch(batch_size, drop_remainder)
        if repeat and first_epoch and steps is None:
            raise DataError(f"Epoch {first_epoch} of data of unknown size cannot be found: read it without repeat.")
        if steps is not None:
            first_epoch, first_step = first_epoch + first_step // steps, first_step % steps
        if repeat:
            batches, skipped = self._epoch(0, share).repeat(), first_epoch * (steps or 0) + first_step
        else:
            batches, skipped = self._epoch(first_epoch, share), first_step
        if skipped:
            _log.info("Reading the data set up to batch %d, where this run starts.", skipped)
        of_all = None if self.shares_rows else share
        return with_rows(batches.skip(skipped), of_all, fingerprints=self.fingerprints).prefetch(tf.data.AUTOTUNE)


class OfDataset:
    """What the streams of one `tf.data.Dataset` have in common. Beside `Stream`, before it."""

    dataset: tf.data.Dataset

    @property
    def rows_per_batch(self) -> int | None:
        return rows_per_batch(self._graph)

    def _raw_spec(self):
        return self.dataset.element_spec

    @functools.cached_property
    def _graph(self) -> tf.compat.v1.GraphDef:
        return graph_of(self.dataset)


def cardinality_of(dataset: tf.data.Dataset) -> int | None:
    """Elements of a data set; None if that is unknown or endless."""
    count = int(dataset.cardinality().numpy())
    return None if count < 0 else count
