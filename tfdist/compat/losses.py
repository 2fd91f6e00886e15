"""The local mean loss of a part of a batch, weighted so that the parts sum to the loss of the whole batch.

Keras divides a loss by what it sees: the rows of the part, or the count of its mask, or the sum of its sample
weights; and then once more by the number of replicas. Here the division by replicas is switched off, and each
reduced loss is multiplied by the part's share of what Keras would divide by on the whole batch, relative to the
part's share of rows. The total times `rows of the part / rows of the batch`, summed over the parts, is then the
loss of the whole batch, whatever mixture of losses, regularisers and `add_loss` terms it holds.

Private names: `keras.src.losses.loss.{reduce_weighted_values, apply_mask, scale_loss_for_distribution,
unscale_loss_for_distribution}`. Keras offers no hook between a loss's values and their reduction.
"""

import contextlib
import threading

import tensorflow as tf
from keras.src.losses import loss as loss_module

from tfdist.compat.patching import patched
from tfdist.errors import UnsupportedError

_stock_reduce = loss_module.reduce_weighted_values
_local = threading.local()
_ROWS, _NOTHING = "rows", "nothing"


@contextlib.contextmanager
def losses_as_on_one_device():
    """While it lasts (the tracing of a step), losses are local means, corrected by `weighing` where it is active."""
    with patched(
        [
            (loss_module, "reduce_weighted_values", _weighed_reduce),
            (loss_module, "scale_loss_for_distribution", lambda value: value),
            (loss_module, "unscale_loss_for_distribution", lambda value: value),
        ]
    ):
        yield


@contextlib.contextmanager
def counting():
    """Collects what each loss computed inside divides by: a list of scalar float32 tensors, or None for rows."""
    found: list = []
    with _active(found):
        yield found


@contextlib.contextmanager
def weighing(rows_ratio, totals):
    """Multiplies each loss computed inside by its part's relative share of what the loss divides by.

    Args:
        rows_ratio: scalar float32, rows of the whole batch over rows of the part.
        totals: what `counting` found, summed over all parts of the batch: scalar float32, or None for rows. It may
            be empty if no loss divides by anything but rows or nothing at all.

    Raises:
        UnsupportedError: a loss has a mask, and `totals` does not know of it.
    """
    with _active(iter(totals), rows_ratio):
        yield


@contextlib.contextmanager
def _active(counts, rows_ratio=None):
    former = getattr(_local, "state", None)
    _local.state = (counts, rows_ratio)
    try:
        yield
    finally:
        _local.state = former


def _weighed_reduce(values, sample_weight=None, mask=None, reduction="sum_over_batch_size", dtype=None):
    loss = _stock_reduce(values, sample_weight, mask, reduction, dtype)
    state = getattr(_local, "state", None)
    if state is None:
        return loss
    counts, rows_ratio = state
    divisor = _divisor(values, sample_weight, mask, reduction)
    if rows_ratio is None:
        counts.append(divisor if tf.is_tensor(divisor) else None)
        return loss
    total = next(counts, None)
    if divisor is _ROWS:
        return loss
    if divisor is not _NOTHING and total is None:
        raise UnsupportedError(
            "The outputs have a mask that no layer of the model announces, so its sum over the replicas is not known. "
            "Give the layer that makes it a compute_mask method."
        )
    share = 1.0 if divisor is _NOTHING else tf.math.divide_no_nan(divisor, total)
    return loss * tf.cast(share * rows_ratio, loss.dtype)


def _divisor(values, sample_weight, mask, reduction):
    """What Keras divides the sum of `values` by, up to a constant: rows, nothing, or a float32 scalar tensor."""
    shape = values.shape
    if len(shape) == 0:
        return _ROWS
    if reduction in (None, "none", "sum"):
        return _NOTHING
    if reduction == "mean_with_sample_weight" and (sample_weight is not None or mask is not None):
        weight = loss_module.apply_mask(sample_weight, mask, dtype="float32", reduction=reduction)
        return tf.reduce_sum(tf.cast(weight, tf.float32))
    if mask is not None:
        return tf.reduce_sum(tf.cast(mask, tf.float32))
    if None in tuple(shape)[1:]:
        return tf.cast(tf.size(values), tf.float32)
    return _ROWS
