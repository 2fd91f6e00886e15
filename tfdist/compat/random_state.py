"""TensorFlow's own random state, for programs that draw from it between steps.

Private names: `Context._seed`, `_rng` and `_set_global_seed`, by which operations without a seed get theirs after
`tf.random.set_seed`; `stateful_random_ops.global_generator`, which is None until a program asks for it, where the
public way makes one.
"""

import random

import tensorflow as tf
from tensorflow.python.eager import context as _context
from tensorflow.python.ops import stateful_random_ops


def operation_seeds() -> tuple[int, tuple] | None:
    """The seed that was set, and the state of what draws one for each operation; None if none was set."""
    context = _context.context()
    return None if context._seed is None else (context._seed, context._rng.getstate())


def set_operation_seeds(seed: int, state: tuple) -> None:
    """Puts back what `operation_seeds` returned."""
    context = _context.context()
    context._set_global_seed(seed)
    context._rng = random.Random()
    context._rng.setstate(state)


def global_generator():
    """What `tf.random.get_global_generator` returns; None if nothing asked for it."""
    return stateful_random_ops.global_generator and tf.random.get_global_generator()
