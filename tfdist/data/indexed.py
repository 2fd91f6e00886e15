"""Data whose examples can be read in any order, given their indices."""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, Protocol

import keras
import tensorflow as tf

from tfdist.batching import EpochPlan
from tfdist.data.base import Data
from tfdist.data.order import InOrder, Order, Shuffled, worker_indices
from tfdist.data.specs import is_none, packed_as, tensors_of
from tfdist.errors import BatchError, DataError

_SEEDS = 2**63


class Source(Protocol):
    """Random access to examples."""

    @property
    def examples(self) -> int:
        """How many there are."""

    @property
    def spec(self) -> Any:
        """The nest of `tf.TensorSpec` of a batch, the leading dimension None. Makes no tensor."""

    def identity(self) -> str:
        """What can be told at little cost of the examples, for a comparison with another worker's."""

    def read(self, indices) -> Any:
        """The batch of the examples at `indices`, an int64 vector of one at least. Called while a graph is traced."""


@dataclasses.dataclass(frozen=True, eq=False)
class Indexed(Data):
    """Examples of a `Source` in some `Order`, each passed through `maps`. It is itself a source to mix with others."""

    source: Source
    order: Order
    maps: tuple[Callable, ...] = ()

    def __post_init__(self):
        if self.examples < 1:
            raise DataError("The data has 0 examples; it needs one at least. Check the path, the split or the filter.")

    @property
    def examples(self) -> int:
        return self.order.examples

    @functools.cached_property
    def element_spec(self):
        spec = self.source.spec
        if not self.maps:
            return spec
        with tf.init_scope():  # It may be asked for first while a graph is traced.
            row = tf.data.Dataset.range(1).map(lambda index: self._mapped(_row(self.source.read(index[tf.newaxis]), 0)))
        return tf.nest.map_structure(_batch_spec, row.element_spec)

    def identity(self):
        return {
            "examples": self.examples,
            "order": self.order.identity(),
            "source": self.source.identity(),
            "batch": str(self.element_spec),
        }

    def with_ids(self) -> "Indexed":
        if not self.order.is_permutation:
            raise DataError(
                "A ledger of a mixture: it shows some examples more than once an epoch on purpose, and others not at "
                "all, so that a ledger could not tell right from wrong. Leave it out, or take concatenate(parts)."
            )
        return self

    def map(self, fn: Callable) -> "Indexed":
        """The same data with `fn` applied to each example, as `tf.data.Dataset.map` does: `fn(x, y)` for `(x, y)`.

        `fn` is traced, and runs in parallel on the worker that reads the example. Let it depend on its arguments
        alone: stateful random operations in it differ from run to run. It may change shapes, dtypes and nesting; a
        list becomes a tuple.
        """
        if not callable(fn):
            raise DataError(f"map({fn!r}): a function of one example is needed, such as `lambda x, y: (x / 255, y)`.")
        return dataclasses.replace(self, maps=(*self.maps, fn))

    def steps_per_epoch(self, batch_size, drop_remainder=False) -> int:
        return self.plan(batch_size, drop_remainder).steps

    def worker_batches(self, batch_size, share, *, first_step=0, first_epoch=0, drop_remainder=False, repeat=False):
        plan = self.plan(batch_size, drop_remainder)
        _ = self.element_spec  # refuses a wrong map here, rather than out of a trace
        first_step += first_epoch * plan.steps
        indices = worker_indices(self.order, plan, share, first_step=first_step, repeat=repeat)
        batches = indices.map(
            lambda rows, ids, index: (rows, ids, self.read(index)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return batches.prefetch(tf.data.AUTOTUNE)

    def read(self, indices):
        """The examples at `indices`, an int64 vector of one at least, mapped: a batch of `element_spec`.

        The maps run in a loop over the rows of a batch, and on several batches at a time. That takes half the time of
        unbatching, mapping and batching again.
        """
        batch = self.source.read(indices)
        if not self.maps:
            return batch
        signature = [tf.TensorSpec(leaf.shape[1:], leaf.dtype) for leaf in tensors_of(self.element_spec)]
        mapped = tf.map_fn(
            lambda leaves: tensors_of(self._mapped(packed_as(batch, leaves))),
            tensors_of(batch),
            fn_output_signature=signature,
        )
        return packed_as(self.element_spec, mapped)

    def _mapped(self, example):
        for fn in self.maps:
            example = keras.tree.lists_to_tuples(fn(*example) if type(example) is tuple else fn(example))
        return example

    def plan(self, batch_size, drop_remainder) -> EpochPlan:
        """How an epoch is cut into global batches. Raises BatchError for a batch size that is none."""
        if not _is_integer(batch_size):
            raise BatchError(f"batch_size={batch_size!r}: the rows of a global batch are an integer, such as 256.")
        return EpochPlan(self.examples, operator.index(batch_size), bool(drop_remainder))


def indexed(source: Source, shuffle: bool, seed: int) -> Indexed:
    """The data of a source, shuffled anew in each epoch or in its own order. Raises DataError for a wrong seed."""
    if not _is_integer(seed) or not 0 <= seed < _SEEDS:
        raise DataError(f"seed={seed!r}: the order of the data needs an integer in [0, 2**63). Take 0.")
    return Indexed(source, Shuffled(source.examples, int(seed)) if shuffle else InOrder(source.examples))


def _row(batch, index):
    return packed_as(batch, [leaf[index] for leaf in tensors_of(batch)])


def _batch_spec(spec):
    """The spec of a batch of examples of `spec`. Raises DataError unless they are dense."""
    if is_none(spec):
        return None
    if not isinstance(spec, tf.TensorSpec):
        raise DataError(f"map() returns {spec}: examples must be dense. Let it end with `.to_tensor()` or padding.")
    return tf.TensorSpec(None if spec.shape.rank is None else (None, *spec.shape), spec.dtype)


def _is_integer(value) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)
