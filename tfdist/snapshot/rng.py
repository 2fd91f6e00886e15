"""The random state of a worker's process, outside of its model: of Python, NumPy and TensorFlow."""

import random

import numpy as np

from tfdist.compat import random_state


def take_rng() -> dict:
    """The states of Python's `random`, NumPy's global generator and, as far as they are in use, TensorFlow's.

    A generator that a program makes itself, such as `np.random.default_rng()`, is its own to save.
    """
    seeds = random_state.operation_seeds()
    generator = random_state.global_generator()
    return {
        "python": _compact(random.getstate()),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002 programs draw from it
        "operations": None if seeds is None else (seeds[0], _compact(seeds[1])),
        "generator": None if generator is None else [copy.numpy() for copy in _copies(generator)],
    }


def put_rng(state: dict) -> None:
    """Puts back what `take_rng` returned, in this process or another.

    TensorFlow's global generator gets its state of then if there is one now with as many copies (one for each replica
    of this worker), as a program has that makes it at its start.
    """
    random.setstate(_full(state["python"]))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    if state["operations"] is not None:
        seed, of_operations = state["operations"]
        random_state.set_operation_seeds(seed, _full(of_operations))
    generator = random_state.global_generator()
    if state["generator"] is not None and generator is not None:
        copies = _copies(generator)
        if [tuple(copy.shape) for copy in copies] == [value.shape for value in state["generator"]]:
            for copy, value in zip(copies, state["generator"]):
                copy.assign(value)


def _copies(generator) -> tuple:
    """Its state on each replica of this worker; a strategy's scope makes it one of several values."""
    return getattr(generator.state, "values", (generator.state,))


def _compact(state: tuple) -> tuple:
    """Python's state, with its hundreds of 32-bit words as one array."""
    version, words, gauss = state
    return version, np.array(words, np.uint32), gauss


def _full(state: tuple) -> tuple:
    version, words, gauss = state
    return version, tuple(words.tolist()), gauss
