"""The user's own `tf.data.Dataset`, batched by the user with the global batch."""

import dataclasses
import functools
import logging

import tensorflow as tf

from tfdist.compat.datasets import counts_iterations, differences, fresh_copy, graph_of
from tfdist.data.base import Data
from tfdist.data.order import at_least_one
from tfdist.data.specs import is_none
from tfdist.errors import BatchError, DataError

_log = logging.getLogger(__name__)


def from_dataset(dataset: tf.data.Dataset, *, same_on_every_worker: bool = False) -> "Stream":
    """The data of a `tf.data.Dataset` whose elements are global batches, as Keras's `fit` has it.

    Every worker reads the whole stream and keeps its rows of each global batch: exact, for any source, at the cost that
    each worker reads and maps all of it. Several workers need one and the same stream, so what may differ among them is
    refused: shuffles without a seed, `deterministic=False`, Python generators. Each epoch is a new iteration of the
    data set, so that a seeded `shuffle` draws another order in each. A start at a later step reads up to there.

    Args:
        dataset: elements `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`, dense, with one leading batch dimension.
        same_on_every_worker: your word that every worker's stream is the same, where it is not seen from the data
            set: a generator without randomness, for example. It switches the refusal off.

    Raises:
        DataError: no `tf.data.Dataset`, not batched, or leaves that are ragged or sparse.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise DataError(
            f"from_dataset({type(dataset).__name__}): a tf.data.Dataset is needed, one that is not distributed yet: "
            "every worker takes its rows by itself. Wrap a Python generator in tf.data.Dataset.from_generator."
        )
    _check_batched(dataset.element_spec)
    if _cardinality(dataset) == 0:
        raise DataError("The data set holds no batch. Check its files, filter and take().")
    return Stream(dataset, same_on_every_worker)


@dataclasses.dataclass(frozen=True, eq=False)
class Stream(Data):
    """Global batches in the order of a `tf.data.Dataset`."""

    dataset: tf.data.Dataset
    same_on_every_worker: bool = False

    @property
    def examples(self) -> None:
        """None: a data set counts its batches, not their rows."""

    @property
    def element_spec(self):
        return tf.nest.map_structure(_any_rows, self.dataset.element_spec)

    def steps_per_epoch(self, batch_size=None, drop_remainder=False) -> int | None:
        """The data set's cardinality, in batches."""
        _refuse_batching(batch_size, drop_remainder)
        return _cardinality(self.dataset)

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
        return batches.skip(skipped).map(self._rows_of(share)).prefetch(tf.data.AUTOTUNE)

    def _epoch(self, epoch: int, share) -> tf.data.Dataset:
        """The data set in the state in which it yields that epoch."""
        graph = self._graph_of_several if share.workers > 1 else self._graph
        return fresh_copy(graph, self.dataset.element_spec, epoch) if counts_iterations(graph) else self.dataset

    def _rows_of(self, share):
        is_tuple = type(self.dataset.element_spec) is tuple

        def keep(*element):
            batch = element if is_tuple else element[0]
            leaves = [leaf for leaf in tf.nest.flatten(batch) if leaf is not None]
            rows = tf.shape(leaves[0], tf.int64)[0]
            start, stop = at_least_one(share.bounds(rows), rows)
            return rows, tf.nest.map_structure(lambda leaf: None if leaf is None else leaf[start:stop], batch)

        return keep

    @functools.cached_property
    def _graph(self) -> tf.compat.v1.GraphDef:
        return graph_of(self.dataset)

    @functools.cached_property
    def _graph_of_several(self) -> tf.compat.v1.GraphDef:
        """The graph, once it is known that several workers may each iterate it."""
        found = differences(self._graph, self.dataset.options())
        if found and not self.same_on_every_worker:
            raise DataError(
                "The data set may differ from worker to worker, so that rows would be seen twice or never: "
                f"{'; '.join(found)}. If it is the same on every worker all the same, say so: "
                "tfdist.data.from_dataset(dataset, same_on_every_worker=True)."
            )
        _log.info("Every worker reads all of the data set and keeps its own rows of each global batch.")
        return self._graph


def _cardinality(dataset) -> int | None:
    count = int(dataset.cardinality().numpy())
    return None if count < 0 else count


def _refuse_batching(batch_size, drop_remainder):
    if batch_size is not None or drop_remainder:
        raise BatchError(
            f"batch_size={batch_size}, drop_remainder={drop_remainder}: a tf.data.Dataset comes in global "
            "batches already. Leave both out, and say `dataset.batch(size, drop_remainder=...)`."
        )


def _any_rows(spec):
    if not isinstance(spec, tf.TensorSpec):
        return None
    return tf.TensorSpec(None if spec.shape.rank is None else (None, *spec.shape[1:]), spec.dtype)


def _check_batched(element_spec):
    specs = tf.nest.flatten(element_spec)
    for spec in specs:
        if not isinstance(spec, tf.TensorSpec) and not is_none(spec):
            raise DataError(
                f"The data set holds {spec}: batches must be dense tensors. Map `.to_tensor()` or `tf.sparse.to_dense`."
            )
    shapes = [spec.shape for spec in specs if isinstance(spec, tf.TensorSpec)]
    rows = {shape[0] for shape in shapes if shape.rank} - {None}
    if not shapes or any(shape.rank == 0 for shape in shapes) or len(rows) > 1:
        raise DataError(
            f"The data set's elements are {element_spec}: not batches, whose first dimension counts the rows in every "
            "tensor. Batch it with the global batch: `dataset.batch(256)`."
        )
