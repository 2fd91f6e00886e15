"""Keras's `validation_split`: the last rows of the arrays, taken before any shuffling."""

import math

import keras

from tfdist.errors import DataError


def split_validation(arrays: tuple, fraction: float, validation_data):
    """`(training arrays, validation data)` of `(x, y, sample_weight)` arrays.

    `validation_data`, if given, wins over `fraction`, as in Keras.

    Raises:
        DataError: a fraction outside of [0, 1), one that leaves either side empty, or data that has no rows to cut.
    """
    if not fraction or validation_data is not None:
        return arrays, validation_data
    leaves = [leaf for leaf in keras.tree.flatten(arrays) if leaf is not None]
    if not 0 < fraction < 1 or any(not hasattr(leaf, "shape") or not len(leaf.shape) for leaf in leaves):
        raise DataError(
            f"validation_split={fraction!r}: a fraction in [0, 1) of arrays x, y. Give validation_data for other data."
        )
    examples = int(leaves[0].shape[0])
    cut = math.floor(examples * (1 - fraction))
    if not 0 < cut < examples:
        raise DataError(f"validation_split={fraction!r} of {examples} examples leaves one side empty. Give more data.")
    head = keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[:cut], arrays)
    tail = keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[cut:], arrays)
    return head, tail
