"""From what a user hands to `fit` to `Data`."""

import tensorflow as tf

from tfdist.data.arrays import from_arrays
from tfdist.data.base import Data
from tfdist.data.streams import from_dataset
from tfdist.errors import DataError


def as_data(x, y=None, sample_weight=None, *, shuffle=False, seed=0, inputs_only=False) -> Data:
    """`Data` of the arguments of `fit`, `evaluate` and `predict`.

    Args:
        x: a `Data` or a `tf.data.Dataset`, which bring their targets along; arrays of inputs with `y` beside them; or
            without `y` the tuple `(x, y)` or `(x, y, sample_weight)`. A list is always a list of inputs.
        y, sample_weight: arrays beside arrays, see `from_arrays`.
        shuffle, seed: the order of arrays, see `from_arrays`; others have their own.
        inputs_only: take a tuple without `y` for a tuple of inputs, as `predict` does.

    Raises:
        DataError: targets beside data that has its own, or a kind of data that is not known.
    """
    if isinstance(x, Data):
        _refuse_extras(x, y, sample_weight)
        return x
    if isinstance(x, tf.data.Dataset | tf.distribute.DistributedDataset) or hasattr(x, "__next__"):
        _refuse_extras(x, y, sample_weight)
        return from_dataset(x)
    if y is None and sample_weight is None and type(x) is tuple and not inputs_only:
        return from_arrays(*_unpacked(x), shuffle=shuffle, seed=seed)
    return from_arrays(x, y, sample_weight, shuffle=shuffle, seed=seed)


def _refuse_extras(x, y, sample_weight):
    if y is not None or sample_weight is not None:
        raise DataError(
            f"y or sample_weight beside a {type(x).__name__}, which holds its own. Make them part of its elements: "
            "(x, y) or (x, y, sample_weight)."
        )


def _unpacked(data):
    if len(data) > 3:
        raise DataError(f"A tuple of {len(data)} is no (x, y, sample_weight). Give several inputs as a list or a dict.")
    return data
