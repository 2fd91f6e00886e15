"""Batches as they are, told in the rows and ids that the loops count."""

import tensorflow as tf

from tfdist.batching import Share
from tfdist.data.order import at_least_one
from tfdist.data.specs import is_none, tensors_of
from tfdist.errors import DataError

_LARGEST = tf.int64.max
"""Clears the sign of an id."""


def with_rows(batches: tf.data.Dataset, share: Share | None, *, fingerprints: bool) -> tf.data.Dataset:
    """`(rows, ids, batch)` of each batch.

    Args:
        share: the share of each global batch that is the worker's; None if the batches are the worker's own.
        fingerprints: whether ids tell the rows apart by what they hold; else they count them.
    """
    is_tuple = type(batches.element_spec) is tuple

    def cut(*element):
        batch = element if is_tuple else element[0]
        rows = tf.shape(tensors_of(batch)[0], tf.int64)[0]
        own_start, own_stop = (tf.zeros_like(rows), rows) if share is None else share.bounds(rows)
        start, stop = at_least_one((own_start, own_stop), rows)
        kept = tf.nest.map_structure(lambda leaf: None if leaf is None else leaf[start:stop], batch)
        own = own_stop - own_start
        return rows, fingerprints_of(kept)[:own] if fingerprints else tf.range(own), kept

    return batches.map(cut)


def fingerprints_of(batch):
    """A number in [0, 2**63) for each row of a batch, the same wherever the row is the same to the byte.

    Farmhash of 64 bits, of all tensors: two of n rows have one number by chance with n**2 / 2**64.
    """
    parts = [tf.fingerprint(leaf) for leaf in tensors_of(batch)]
    return tf.bitcast(tf.fingerprint(tf.concat(parts, axis=1)), tf.int64) & _LARGEST


def any_rows(spec):
    """The spec of a leaf, whatever its number of rows; None for None."""
    if not isinstance(spec, tf.TensorSpec):
        return None
    return tf.TensorSpec(None if spec.shape.rank is None else (None, *spec.shape[1:]), spec.dtype)


def check_batched(element_spec) -> None:
    """Raises DataError unless the elements are dense batches."""
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
