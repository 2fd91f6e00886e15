"""A model's variables as named values: taken without stopping the training for long, and put back."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import google_crc32c
import keras
import numpy as np
import tensorflow as tf

from tfdist.compat import seeds, trainer, weights_file
from tfdist.compat.weights_file import Layout, Stored, as_array
from tfdist.errors import CheckpointError
from tfdist.snapshot.replicas import copies_of, local_replicas

_OTHERS = "tfdist/variables"
_LISTED = 10


class Values(NamedTuple):
    """The values that the variables had at one moment.

    Attributes:
        entries: host tensors by name, and arrays where a layer saves another value than a variable's.
        attributes: of groups in Keras's layout.
        paths: by name, the variable's own path.
    """

    entries: dict[str, Any]
    attributes: dict[str, dict]
    paths: dict[str, str]


def named_variables(model) -> dict[str, Any]:
    """Each variable that a training goes on from, once; those of metrics are none.

    A variable has the name that it has in a weights file of Keras, such as `layers/dense_1/vars/0`, or
    `tfdist/variables/3` if Keras does not save it (seeds, what a layer does not declare, other optimizers).
    """
    return _named(model, weights_file.collect(model))


def take(model) -> Values:
    """The values of all variables, those of the first replica of this worker.

    It copies nothing that is in host memory: a tensor shares the variable's buffer, of which TensorFlow makes a copy
    as soon as it is about to change. It communicates with no other worker.
    """
    layout = weights_file.collect(model)
    named = _named(model, layout)
    strategy = model.distribute_strategy
    with tf.device("CPU:0"):
        taken = {id(variable): tf.identity(copies_of(strategy, variable)[0]) for variable in named.values()}
    entries = {name: taken.get(id(value), value) for name, value in (layout.entries | named).items()}
    return Values(entries, layout.attributes, {name: variable.path for name, variable in named.items()})


def put(model, stored: Mapping[str, Stored]) -> None:
    """Assigns what is stored to the variables, on each replica of this worker. All or none are assigned.

    Args:
        model: built, with its optimizer.
        stored: by name, as `take` gave them; names under `tfdist/` that are none of variables are left alone.

    Raises: CheckpointError that lists what is missing, extra, or of another shape or type.
    """
    layout = weights_file.collect(model)
    named = _named(model, layout)
    _check(named, layout, stored)
    strategy = model.distribute_strategy
    weights_file.load_computed(model, layout, stored)
    for name, variable in named.items():
        value = tf.constant(stored[name].read())
        for copy in copies_of(strategy, variable):
            copy.assign(value)


def digest(model) -> list[int]:
    """A checksum over the variables' values, for each replica of this worker: of equal bits it is equal."""
    strategy = model.distribute_strategy
    copies = [copies_of(strategy, variable) for variable in named_variables(model).values()]
    return [_checksum(of[min(replica, len(of) - 1)] for of in copies) for replica in local_replicas(strategy)]


def _named(model, layout: Layout) -> dict[str, Any]:
    named: dict[str, Any] = {}
    known = {id(variable) for variable in trainer.metrics_state_of(model)}
    for name, value in layout.entries.items():
        if isinstance(value, keras.Variable) and id(value) not in known:
            named[name] = value
            known.add(id(value))
    others = {id(variable): variable for variable in _all_of(model) if id(variable) not in known}
    return named | {f"{_OTHERS}/{i}": variable for i, variable in enumerate(others.values())}


def _check(named: dict[str, Any], layout: Layout, stored: Mapping[str, Stored]) -> None:
    expected = {**layout.entries, **named}
    missing = [_called(name, getattr(expected[name], "path", "")) for name in expected if name not in stored]
    there = [name for name in stored if not name.startswith("tfdist/") or name.startswith(f"{_OTHERS}/")]
    extra = [_called(name, stored[name].note) for name in there if name not in expected]
    other = [
        f"{_called(name, variable.path)} is {_facts(variable)} in the model and {_facts(stored[name])} there"
        for name, variable in named.items()
        if name in stored and _facts(variable) != _facts(stored[name])
    ]
    kinds = {
        "not in the checkpoint": missing,
        "not in the model": extra,
        "of another shape or type": other,
        "of another optimizer": _of_another_optimizer(named, stored),
    }
    problems = [f"{len(of)} {kind}: {_some(of)}" for kind, of in kinds.items() if of]
    if problems:
        raise CheckpointError(
            f"The checkpoint does not fit the model: {'; '.join(problems)}. Build the model and its optimizer as they "
            "were when it was saved, or start in another folder."
        )


def _of_another_optimizer(named: dict[str, Any], stored: Mapping[str, Stored]) -> list[str]:
    """Slots may be alike in number and shape, and mean something else."""
    return [
        f"{_called(name, variable.path)} is {stored[name].note} there"
        for name, variable in named.items()
        if name.startswith("optimizer/") and name in stored and _owner(variable.path) != _owner(stored[name].note)
    ]


def _owner(path: str) -> str:
    """The first part of a variable's path, as it is in all releases, without the number of the second of a kind."""
    return re.sub(r"_\d+$", "", path.partition("/")[0]).lower()


def _facts(array) -> str:
    return f"{array.dtype} {tuple(array.shape)}"


def _called(name: str, path: str) -> str:
    return f"{path} ({name})" if path else name


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _all_of(model) -> list:
    with model.distribute_strategy.scope():
        generator = seeds.global_generator()
    of_optimizers = [variable for optimizer in trainer.optimizers_of(model) for variable in optimizer.variables]
    return [*model.variables, *of_optimizers, *trainer.state_of(model, generator)]


def _checksum(copies) -> int:
    crc = 0
    with tf.device("CPU:0"):
        for copy in copies:
            crc = google_crc32c.extend(crc, as_array(tf.identity(copy)).reshape(-1).view(np.uint8))
    return crc
