"""Keras's own `fit` while it runs: what it does not tell its callbacks, and its data at another place.

Keras hands callbacks the model and the number of epochs and steps, not the other callbacks and not its data, and tells
nobody when it ends by an exception. Private names: the local variables `self`, `callbacks`, `epoch_iterator` and
`initial_epoch` of `TensorFlowTrainer.fit`; `Trainer._initial_epoch`, which it reads once all callbacks have begun, and
`_get_metrics_result_or_logs`, which it calls first with the logs of the last step of an epoch;
`CallbackList._async_train` and `_async_test`; of `TFEpochIterator` the attributes used in `Feed`.
"""

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

_stack: ContextVar[contextlib.ExitStack | None] = ContextVar("stack", default=None)


class RunningFit(NamedTuple):
    """A call of `keras.Model.fit`.

    Attributes:
        callbacks: all of them, with those that Keras adds; one that is appended is called after the others.
        feed: what it trains on.
        first_epoch: the argument `initial_epoch`.
        stack: closed when the call ends, also by an exception.
    """

    callbacks: list
    feed: "Feed"
    first_epoch: int
    stack: contextlib.ExitStack


def close_stacks() -> None:
    """From now on calls of `keras.Model.fit` have a stack. A second call changes nothing."""
    stock = keras.Model.fit
    if stock.__module__ != __name__:
        keras.Model.fit = _with_stack(stock)


def running_fit(model) -> RunningFit | None:
    """The call of Keras's `fit` that trains `model`, for its callbacks; None if it is called by another loop.

    From now on it calls its callbacks in the main thread alone, one after the other.
    """
    frame, code, stack = inspect.currentframe(), inspect.unwrap(TensorFlowTrainer.fit).__code__, _stack.get()
    while frame is not None and not (frame.f_code is code and frame.f_locals["self"] is model):
        frame = frame.f_back
    if frame is None or stack is None:
        return None
    names = frame.f_locals
    container = names["callbacks"]
    container._async_train = container._async_test = False
    return RunningFit(container.callbacks, Feed(names["epoch_iterator"]), names["initial_epoch"], stack)


def begin_at(fit: RunningFit, model, epoch: int) -> None:
    """Has the call, none of whose epochs has begun yet, begin at `epoch`; later calls are as before."""
    fit.stack.callback(setattr, model, "_initial_epoch", model._initial_epoch)
    model._initial_epoch = epoch


def epoch_logs(model, logs: dict) -> dict:
    """What `fit` says of an epoch's training after its last step, which had `logs`."""
    return model._get_metrics_result_or_logs(logs)


def finish_with(fit: RunningFit, model, choose: Callable[[Callable, dict], dict]) -> None:
    """Lets `fit` say `choose(epoch_logs, logs)` of the next epoch, where `logs` are those of its last step, if any."""
    own = model._get_metrics_result_or_logs

    def once(logs):
        _forget(model, "_get_metrics_result_or_logs")
        return choose(own, logs)

    vars(model)["_get_metrics_result_or_logs"] = once
    fit.stack.callback(_forget, model, "_get_metrics_result_or_logs")


class Feed:
    """The data of a running `fit`, as iterators over the calls of each epoch."""

    def __init__(self, batches):
        self._batches = batches

    @property
    def steps_per_call(self) -> int:
        """The model's `steps_per_execution`."""
        return self._batches.steps_per_execution

    @property
    def steps_per_epoch(self) -> int | None:
        """The argument: with it, an epoch may begin in the midst of the data."""
        return self._batches.steps_per_epoch

    @property
    def spec(self):
        """Of a batch, nested."""
        return self._batches._distributed_dataset.element_spec

    def identity(self) -> dict:
        """What the place inside an epoch depends on."""
        adapter = self._batches.data_adapter
        return {
            "batches": adapter.num_batches,
            "batch_size": adapter.batch_size,
            "steps_per_epoch": self.steps_per_epoch,
            "steps_per_execution": self.steps_per_call,
        }

    def pass_epochs(self, epochs: int) -> None:
        """Makes the iterators of `epochs` epochs and draws nothing: shuffles count them, and change their order."""
        for _ in range(epochs):
            calls = self._batches._enumerate_iterator()
            if self.steps_per_epoch or self._batches.num_batches:
                for _ in calls:
                    pass
            else:  # as long as its data, which nobody knows
                next(calls)
                self._batches.reset()

    @property
    def drawn(self) -> int:
        """Batches that the epochs before have had of the data in whose midst the next one goes on."""
        return self._batches._steps_seen if self.steps_per_epoch and self._batches._current_iterator else 0

    def draw(self) -> None:
        """Reads those batches."""
        _draw(self._batches._current_iterator, self.drawn)

    def begin_anew(self) -> None:
        """Lets the next epoch begin with the data's first batch."""
        self._batches._current_iterator, self._batches._steps_seen = None, 0

    def skip(self, steps: int) -> None:
        """Reads the batches of the first `steps` steps of the next epoch, which then has the others."""
        calls = self._batches._enumerate_iterator()
        for call in calls:
            _, last, iterator = call
            if last >= steps:
                self._have_next(itertools.chain([call], calls))
                return
            _draw(iterator, self.steps_per_call)
        self._have_next(calls)

    def skip_all(self) -> None:
        """Lets the next epoch have no steps, and reads nothing."""
        self.pass_epochs(1)
        self._have_next(iter(()))

    def _have_next(self, calls: Iterator) -> None:
        def once():
            _forget(self._batches, "_enumerate_iterator")
            return calls

        self._batches._enumerate_iterator = once


def _draw(iterator, number: int) -> None:
    for _ in range(number):
        next(iterator, None)


def _forget(owner, name: str) -> None:
    vars(owner).pop(name, None)


def _with_stack(stock):
    @functools.wraps(stock, assigned=("__doc__", "__name__", "__qualname__"))
    def fit(model, *args, **kwargs):
        with contextlib.ExitStack() as stack:
            token = _stack.set(stack)
            stack.callback(_stack.reset, token)
            return stock(model, *args, **kwargs)

    return fit
