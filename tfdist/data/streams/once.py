"""Sources that cannot be iterated twice for one epoch: a look at their start, and training from there on."""

import functools
import hashlib
import itertools
from collections.abc import Iterator

import keras
import tensorflow as tf

from tfdist.compat.one_iteration import rest_of
from tfdist.data.python_read import kept_errors
from tfdist.data.specs import tensors_of
from tfdist.data.streams.rows import any_rows, check_batched
from tfdist.errors import DataError

_LOOKED_AT = 3


class Once:
    """A data set whose first batches are looked at, and which is iterated no more for that."""

    def __init__(self, dataset: tf.data.Dataset):
        """Reads the first batches."""
        self._dataset, self._iterator = dataset, iter(dataset)
        self._first = list(itertools.islice(self._iterator, _LOOKED_AT))
        self._is_left = True

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the first batches, all of their bytes."""
        leaves = [leaf for batch in self._first for leaf in tensors_of(batch)]
        return hashlib.blake2b(b"".join(tf.io.serialize_tensor(leaf).numpy() for leaf in leaves)).hexdigest()[:16]

    def batches(self) -> tf.data.Dataset:
        """A data set whose first iteration is the one that was begun; later ones are those of the data set."""
        begun = rest_of(self._iterator)
        for batch in reversed(self._first):
            begun = tf.data.Dataset.from_tensors(batch).concatenate(begun)

        def pick(is_left):
            return _if(is_left, begun).concatenate(_if(tf.logical_not(is_left), self._dataset))

        return tf.data.Dataset.range(1).map(self._ask).flat_map(pick)

    def _ask(self, _):
        return tf.ensure_shape(tf.numpy_function(self._take, [], tf.bool), ())

    def _take(self) -> bool:
        is_left, self._is_left = self._is_left, False
        return is_left


def dataset_of_iterator(batches: Iterator) -> tf.data.Dataset:
    """The data set of a Python iterator's batches. It has one epoch.

    Raises:
        DataError: there is no batch, or it is no nest of arrays.
    """
    first = next(batches, None)
    if first is None:
        raise DataError("The iterator yields no batch. Make a new one: it may have been used up before.")
    begun: list = []

    def read_once():
        with kept_errors():
            if begun:
                raise DataError(
                    "A Python iterator of batches is read once, and an earlier epoch, evaluation or fit has begun to "
                    "read this one: what was read ahead would be lost. Give a new iterator each time, or a function "
                    "that makes one: tf.data.Dataset.from_generator(function, output_signature=...)."
                )
        begun.append(True)
        return map(keras.tree.lists_to_tuples, itertools.chain([first], batches))

    return tf.data.Dataset.from_generator(read_once, output_signature=_signature(first))


def _signature(batch):
    try:
        tensors = tf.nest.map_structure(tf.convert_to_tensor, keras.tree.lists_to_tuples(batch))
        specs = tf.nest.map_structure(tf.type_spec_from_value, tensors)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"The iterator yields a {type(batch).__name__} that is no batch ({error}). Let it yield arrays, or tuples "
            "and dicts of arrays, whose first dimension counts the rows."
        ) from error
    check_batched(specs)
    return tf.nest.map_structure(any_rows, specs)


def _if(condition, dataset: tf.data.Dataset) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(condition).filter(lambda holds: holds).flat_map(lambda _: dataset)
