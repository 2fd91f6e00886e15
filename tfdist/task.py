"""The contract that a user's experiment implements, and how it is found by name."""

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Protocol

from tfdist.errors import ConfigError
from tfdist.fields import nearest


class Task(Protocol):
    """An experiment: its model, what it is trained for, its data.

    A module has `make_task(**arguments)`, which returns one; its import path is the setting `task.name`, and the
    other settings under `task` are the arguments. Every worker makes its own task and calls the methods alike, in
    this order, each once.
    """

    def train_data(self, seed: int):
        """What `tfdist.fit` reads: a `tfdist.data` source, shuffled by `seed`, arrays `(x, y[, sample_weight])`, or a
        `tf.data.Dataset` whose batches have the settings' `batch_size` rows. An evaluator does not call it.
        """

    def eval_data(self):
        """The same for the held-out examples, in their own order."""

    def make_model(self):
        """A `keras.Model`, not compiled. Called in the strategy's scope, under the precision of the settings."""

    def objective(self) -> Mapping:
        """Arguments for `model.compile`: `loss`, `metrics`, and if need be `loss_weights`, `weighted_metrics`.

        Called in the strategy's scope. The optimizer is made from the settings.
        """


def find_task(name: str) -> None:
    """Checks that there is a module `name`, without running it. Raises: ConfigError."""
    parent, _, last = name.rpartition(".")
    try:
        found = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        beside = _modules_of(parent)
        hint = nearest(last, beside) if beside else "Start from the folder that holds it, or install its package."
        raise ConfigError(f"task.name={name!r}: there is no such module; {hint}")


def make_task(name: str, arguments: Mapping) -> Task:
    """The task that the module's `make_task(**arguments)` returns. Raises: ConfigError if it takes other arguments."""
    make = getattr(importlib.import_module(name), "make_task", None)
    if make is None:
        raise ConfigError(f"task.name={name!r}: the module has no make_task(). Add one that returns the task.")
    signature = inspect.signature(make)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"task={dict(arguments)}: {name}.make_task{signature} says: {error}.") from None
    return make(**arguments)


def _modules_of(parent):
    try:
        paths = importlib.import_module(parent).__path__ if parent else None
    except (ImportError, AttributeError):
        return []
    return [module.name for module in pkgutil.iter_modules(paths)] if paths else []
