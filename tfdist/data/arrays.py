"""Data that lies in arrays: in memory, or in a file mapped into it."""

import dataclasses
import functools
import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdist.data.indexed import Indexed, indexed
from tfdist.data.python_read import read_in_python
from tfdist.data.specs import tensors_of
from tfdist.errors import DataError

_COMPARED_VALUES = 128


def from_arrays(x, y=None, sample_weight=None, *, shuffle=False, seed=0) -> Indexed:
    """The data of arrays whose first dimension counts the examples.

    Args:
        x: inputs: an array or a nest of dicts, lists and tuples of arrays. NumPy arrays of numbers, booleans or
            strings, eager tensors, pandas frames and whatever offers `__array__`. A `np.memmap` is read batch by batch,
            anything else is held in memory. Floats become `keras.config.floatx()`, as in Keras.
        y: targets, alike; None without.
        sample_weight: weights of the examples. One array holds for all outputs; several are nested as `y`.
        shuffle: another order in each epoch, drawn from `seed`; else the order of the arrays.
        seed: an integer in [0, 2**63).

    Raises:
        DataError: no array, different numbers of examples, or a leaf that is no array.
    """
    if y is None and sample_weight is not None:
        raise DataError("sample_weight without y: weights weigh the loss of targets. Give y, or leave the weights out.")
    if sample_weight is not None:
        sample_weight = _weights_per_output(y, sample_weight)
    element = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
    return indexed(ArraySource.of(element), shuffle, seed)


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource:
    """A nest of arrays with one first dimension; None leaves stay None."""

    arrays: Any
    examples: int

    @classmethod
    def of(cls, element) -> "ArraySource":
        """The source of a nest of array-likes, checked. Raises DataError."""
        arrays = keras.tree.lists_to_tuples(element)
        paths = [(_name(path), leaf) for path, leaf in keras.tree.flatten_with_path(arrays)]
        leaves = {name: _as_array(name, leaf) for name, leaf in paths if leaf is not None}
        lengths = {name: int(leaf.shape[0]) for name, leaf in leaves.items()}
        if not lengths:
            raise DataError("The data holds no array: x is None or an empty nest. Give an array of inputs.")
        if len(set(lengths.values())) > 1:
            raise DataError(
                f"The arrays differ in their number of examples: {lengths}. The first dimension counts examples and "
                "must be the same in all. Cut them to one length."
            )
        flat = [None if leaf is None else leaves[name] for name, leaf in paths]
        return cls(keras.tree.pack_sequence_as(arrays, flat), next(iter(lengths.values())))

    @property
    def spec(self):
        return tf.nest.map_structure(_spec, self.arrays)

    def identity(self) -> str:
        """A hash of some values: floats to two digits, since machines of another kind may differ in the last bits."""
        digest = hashlib.blake2b(str(self.examples).encode(), digest_size=8)
        for array in tensors_of(self.arrays):
            digest.update(repr([_told(value) for value in _some(array)]).encode())
        return digest.hexdigest()

    def read(self, indices):
        return tf.nest.map_structure(lambda read: None if read is None else read(indices), self._readers)

    @functools.cached_property
    def _readers(self):
        return tf.nest.map_structure(_reader, self.arrays)


def _some(array) -> list:
    """Values from rows all over the array, of another place in each row."""
    flat = array.reshape(len(array), -1)
    rows = np.linspace(0, len(flat) - 1, min(len(flat), _COMPARED_VALUES)).astype(int)
    return [flat[row, place % flat.shape[1]] for place, row in enumerate(rows)] if flat.shape[1] else []


def _told(value) -> str:
    return f"{complex(value):.1e}" if isinstance(value, np.inexact) else repr(value)


def _weights_per_output(y, sample_weight):
    if not keras.tree.is_nested(y):
        return sample_weight
    if not keras.tree.is_nested(sample_weight):
        return keras.tree.map_structure(lambda _: sample_weight, y)
    try:
        keras.tree.assert_same_structure(y, sample_weight)
    except ValueError:
        raise DataError(
            "sample_weight and y are nested differently. Give one array of weights for all outputs, or one per output "
            "in the very structure of y; None stands for an output without weights."
        ) from None
    return sample_weight


def _name(path) -> str:
    if not path or not isinstance(path[0], int):
        path = (0, *path)
    return ("x", "y", "sample_weight")[path[0]] + "".join(f"[{key!r}]" for key in path[1:])


def _as_array(name, leaf) -> np.ndarray:
    """The leaf as an array of a dtype that a tensor can have, memory maps kept as they are."""
    if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) or hasattr(leaf, "tocsr"):
        raise DataError(
            f"{name} is a {type(leaf).__name__}: rows of arrays need one shape. Make it dense, with `.to_tensor()`, "
            "`tf.sparse.to_dense` or `.toarray()`, or hand over a batched `tf.data.Dataset`."
        )
    if isinstance(leaf, list | tuple | str | bytes) or not hasattr(leaf, "__array__"):
        raise DataError(
            f"{name} is {leaf!r:.60}, a {type(leaf).__name__}, but must be an array. Try `numpy.asarray`, or hand over "
            "a batched `tf.data.Dataset`."
        )
    array = leaf if isinstance(leaf, np.memmap) else np.asarray(leaf)
    if type(leaf).__module__.startswith("pandas") and array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim == 0:
        raise DataError(f"{name} is the scalar {array!r:.60}: the first dimension counts the examples. Give an array.")
    if _dtype(array) is None:
        raise DataError(
            f"{name} has dtype {array.dtype}, which no tensor has: numbers, booleans and strings work. Convert it, "
            "for example with `.astype('float32')` or `.astype(str)`."
        )
    return array


def _dtype(array) -> tf.DType | None:
    """The dtype of the tensors read from `array`: Keras's float for every float; None if there is none."""
    if array.dtype.kind in "SU" or (array.dtype == object and all(isinstance(v, str | bytes) for v in array.flat)):
        return tf.string
    try:
        dtype = tf.float64 if array.dtype.kind == "f" else tf.as_dtype(array.dtype)
    except TypeError:
        return None
    if dtype.is_floating:
        return tf.as_dtype(keras.config.floatx())
    return dtype if dtype.is_numpy_compatible and array.dtype != object else None


def _spec(array):
    return None if array is None else tf.TensorSpec((None, *array.shape[1:]), _dtype(array))


def _reader(array):
    """The function from an index vector to a batch of the array's rows."""
    if array is None:
        return None
    spec = _spec(array)
    if isinstance(array, np.memmap):
        return functools.partial(_read_mapped, array, spec)
    with tf.init_scope(), tf.device("CPU:0"):
        tensor = tf.constant(array if spec.dtype == tf.string else array.astype(spec.dtype.as_numpy_dtype, copy=False))
    return functools.partial(tf.gather, tensor)


def _read_mapped(array, spec, indices):
    kind = object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype

    return read_in_python(lambda index: [np.take(array, index, axis=0).astype(kind, copy=False)], indices, [spec])[0]
