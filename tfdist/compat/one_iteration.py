"""A `tf.data.Dataset` of what an iterator has left."""

import tensorflow as tf


def rest_of(iterator) -> tf.data.Dataset:
    """The elements that `iterator`, of a `tf.data.Dataset`, has not yielded yet: once, since they are gone then."""
    options = tf.data.Dataset.counter().map(lambda _: iterator.get_next_as_optional())
    return options.take_while(_has_value).map(_value)


def _has_value(optional):
    return optional.has_value()


def _value(optional):
    return optional.get_value()
