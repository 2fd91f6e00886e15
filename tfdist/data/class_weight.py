"""Class weights as sample weights."""

import keras
import tensorflow as tf

from tfdist.errors import DataError


def with_class_weight(batches: tf.data.Dataset, class_weight: dict) -> tf.data.Dataset:
    """Batches `(rows, ids, (x, y, sample_weight))` in which each row weighs what its class does.

    Args:
        batches: elements `(rows, ids, (x, y))`; `y` is one tensor of integer classes [n] or [n, 1], or one-hot
            [n, classes].
        class_weight: class index -> weight; a class that is not named weighs 1, as in Keras.

    Raises:
        DataError: there is no single `y`, or a key that is not a class index.
    """
    if not all(isinstance(key, int) and key >= 0 for key in class_weight):
        raise DataError(f"class_weight has the keys {list(class_weight)}: a key is a class index, 0 or above.")
    element = batches.element_spec[2]
    if not isinstance(element, tuple) or len(element) != 2 or keras.tree.is_nested(element[1]):
        raise DataError(
            "class_weight needs one tensor of targets: data (x, y) with a single output. Use sample_weight."
        )
    table = tf.constant([float(class_weight.get(i, 1.0)) for i in range(max(class_weight) + 1)], keras.config.floatx())

    def weigh(rows, ids, batch):
        x, y = batch
        return rows, ids, (x, y, _lookup(table, _classes(y)))

    return batches.map(weigh, num_parallel_calls=1, deterministic=True)


def _classes(y):
    if y.shape.rank and y.shape.rank > 1:
        y = tf.squeeze(y, -1) if y.shape[-1] == 1 else tf.argmax(y, axis=-1)
    return tf.cast(tf.round(y) if y.dtype.is_floating else y, tf.int64)


def _lookup(table, classes):
    known = classes < tf.size(table, tf.int64)
    return tf.where(known, tf.gather(table, tf.where(known, classes, 0)), 1.0)
