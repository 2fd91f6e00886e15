"""The structure of elements: nests of tensors or specs in which None stands for an absent leaf."""

import tensorflow as tf


def is_none(spec) -> bool:
    """Whether `spec` is the one that `tf.data` has for None."""
    return spec == tf.type_spec_from_value(None)


def tensors_of(nest) -> list:
    """The leaves of a nest but for None, in order."""
    return [leaf for leaf in tf.nest.flatten(nest) if leaf is not None]


def packed_as(nest, tensors):
    """The tensors, nested as `nest`, whose None leaves stay."""
    rest = iter(tensors)
    return tf.nest.map_structure(lambda leaf: None if leaf is None else next(rest), nest)
