"""What `tf.data` says of the structure of its elements."""

import tensorflow as tf


def is_none(spec) -> bool:
    """Whether `spec` is the one that `tf.data` has for None."""
    return spec == tf.type_spec_from_value(None)
