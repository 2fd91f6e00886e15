"""Data whose examples can be read in any order, given their indices."""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tfdist.batching import EpochPlan
from tfdist.data.base import Data
from tfdist.data.order import worker_indices
from tfdist.errors import BatchError, DataError

_SEEDS = 2**63
_PARALLEL = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}


class Source(Protocol):
    """Random access to examples."""

    @property
    def examples(self) -> int:
        """How many there are."""

    @property
    def spec(self) -> Any:
        """The nest of `tf.TensorSpec` of a batch, the leading dimension None. Makes no tensor."""

    def read(self, indices) -> Any:
        """The batch of the examples at `indices`, an int64 vector. Called while a graph is traced."""


@dataclasses.dataclass(frozen=True, eq=False)
class Indexed(Data):
    """Examples of a `Source` in a shuffled order or its own, each passed through `maps`."""

    source: Source
    shuffle: bool = False
    seed: int = 0
    maps: tuple[Callable, ...] = ()

    def __post_init__(self):
        if not _is_integer(self.seed) or not 0 <= self.seed < _SEEDS:
            raise DataError(f"seed={self.seed!r}: the order of the data needs an integer in [0, 2**63). Take 0.")
        if self.examples < 1:
            raise DataError("The data has 0 examples; it needs one at least. Check the path, the split or the filter.")

    @property
    def examples(self) -> int:
        return self.source.examples

    @property
    def element_spec(self):
        if not self.maps:
            return self.source.spec
        spec = _mapped(tf.data.Dataset.range(1).map(self._one_row), self.maps, 1).element_spec[1]
        return tf.nest.map_structure(lambda leaf: leaf if isinstance(leaf, tf.TensorSpec) else None, spec)

    def map(self, fn: Callable) -> "Indexed":
        """The same data with `fn` applied to each example, as `tf.data.Dataset.map` does: `fn(x, y)` for `(x, y)`.

        `fn` is traced, and runs in parallel on the worker that reads the example. Let it depend on its arguments
        alone: stateful random operations in it differ from run to run. It may change shapes, dtypes and nesting.
        """
        if not callable(fn):
            raise DataError(f"map({fn!r}): a function of one example is needed, such as `lambda x, y: (x / 255, y)`.")
        return dataclasses.replace(self, maps=(*self.maps, fn))

    def steps_per_epoch(self, batch_size, drop_remainder=False) -> int:
        return self._plan(batch_size, drop_remainder).steps

    def worker_batches(self, batch_size, share, *, first_step=0, first_epoch=0, drop_remainder=False, repeat=False):
        plan = self._plan(batch_size, drop_remainder)
        first_step += first_epoch * plan.steps
        seed = int(self.seed) if self.shuffle else None
        indices = worker_indices(plan, share, first_step=first_step, repeat=repeat, seed=seed)
        if not self.maps:
            return indices.map(self._rows_and_batch, **_PARALLEL).prefetch(tf.data.AUTOTUNE)
        size = largest_part(plan, share)
        padded = indices.map(lambda rows, index: _padded(rows, index, size))
        read = padded.map(lambda counts, index: (counts, self.source.read(index)), **_PARALLEL)
        return _mapped(read, self.maps, size).prefetch(tf.data.AUTOTUNE)

    def _plan(self, batch_size, drop_remainder) -> EpochPlan:
        if not _is_integer(batch_size):
            raise BatchError(f"batch_size={batch_size!r}: the rows of a global batch are an integer, such as 256.")
        return EpochPlan(self.examples, operator.index(batch_size), bool(drop_remainder))

    def _rows_and_batch(self, rows, index):
        return rows, self.source.read(index)

    def _one_row(self, index):
        counts, padded = _padded(index, index[tf.newaxis], 1)
        return counts, self.source.read(padded)


def largest_part(plan, share) -> int:
    """The most rows that a worker reads of a global batch, and one at least.

    A partial batch can give a worker more rows than a full one: part 2 of 5 has one of 2 rows and none of 3.
    """
    bounds = [share.bounds(rows) for rows in (plan.rows(0), plan.last_rows)]
    return max(1, *(stop - start for start, stop in bounds))


def _padded(rows, index, size):
    """`(counts, index)`: `index` brought to `size` by repeating its first, and per row what undoes that."""
    count = tf.size(index, tf.int64)
    index = tf.concat([index, tf.repeat(index[:1], size - count)], 0)
    return (tf.repeat(rows, size), tf.repeat(count, size)), tf.ensure_shape(index, [size])


def _mapped(read, maps, size):
    """From `(counts, batch of size rows)` to `(rows, batch)` with each example mapped and the padding cut away."""

    def call(counts, example):
        for fn in maps:
            example = fn(*example) if type(example) is tuple else fn(example)
        return counts, example

    def cut(counts, batch):
        rows, count = counts[0][0], counts[1][0]
        return rows, tf.nest.map_structure(lambda leaf: None if leaf is None else leaf[:count], batch)

    return read.unbatch().map(call, **_PARALLEL).batch(size).map(cut)


def _is_integer(value) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)
