"""Random access to whatever has a length and gives an example for an index."""

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.data.python_read import read_in_python
from tfdist.errors import DataError


@dataclasses.dataclass(frozen=True, eq=False)
class SequenceSource:
    """A sequence of examples of one structure and shape, each a nest of arrays, numbers or strings.

    A worker's examples are read at once where the sequence has `__getitems__(indices)`.
    """

    sequence: Any

    @property
    def examples(self) -> int:
        return len(self.sequence)

    @functools.cached_property
    def spec(self):
        return tf.nest.map_structure(_spec, self.sequence[0])

    def identity(self) -> str:
        return f"{type(self.sequence).__name__} of {self.examples}"

    def read(self, indices):
        leaves = read_in_python(self._rows, indices, tf.nest.flatten(self.spec))
        return tf.nest.pack_sequence_as(self.spec, leaves)

    def _rows(self, indices):
        indices = indices.tolist()
        if hasattr(self.sequence, "__getitems__"):
            examples = self.sequence.__getitems__(indices)
        else:
            examples = [self.sequence[index] for index in indices]
        return [_stacked(leaves, indices) for leaves in zip(*map(tf.nest.flatten, examples))]


def _spec(leaf):
    leaf = np.asarray(leaf)
    return tf.TensorSpec((None, *leaf.shape), tf.string if leaf.dtype.kind in "SUO" else tf.as_dtype(leaf.dtype))


def _stacked(leaves, indices):
    if isinstance(leaves[0], bytes | str):
        return np.array(leaves, object)
    shapes = {np.shape(leaf) for leaf in leaves}
    if len(shapes) > 1:
        raise DataError(
            f"Examples {indices} have the shapes {sorted(shapes)}, but a batch needs one. Give them encoded, as bytes, "
            "and decode and resize them in .map(fn)."
        )
    return np.stack(leaves)
