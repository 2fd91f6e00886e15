"""What must not be done twice."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfdist.snapshot.callback_state import put_callbacks, take_callbacks
from tfdist.snapshot.replicas import copies_of
from tfdist.snapshot.rng import put_rng, take_rng
from tfdist.snapshot.variables import named_variables


@contextlib.contextmanager
def held(model, callbacks: list) -> Iterator[None]:
    """Takes back, in the end, what callbacks did in the block to the model, to their own state, and to random states.

    For the hooks that an interrupted training had called before its checkpoint, and that are called again by the one
    that goes on from it: a schedule that halves the rate, say.
    """
    strategy = model.distribute_strategy
    copies = [copy for variable in named_variables(model).values() for copy in copies_of(strategy, variable)]
    values = [_value(copy) for copy in copies]
    states, rng = take_callbacks(callbacks), take_rng()
    yield
    for copy, value in zip(copies, values):
        copy.assign(value)
    put_callbacks(callbacks, states, tell=False)
    put_rng(rng)


def _value(copy):
    with tf.device(copy.device):
        return tf.identity(copy)
