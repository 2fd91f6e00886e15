"""Driving the traced calls of an epoch, and the callbacks between them."""

import re
import time

import keras
import numpy as np
import tensorflow as tf

from tfdist.errors import DataError, PeerLostError
from tfdist.loop.feed import Feed
from tfdist.loop.pace import Pace, steps_until_look
from tfdist.step.run import Outcome, Runner


class Driver:
    """Runs epochs of train or evaluate steps. Every worker must drive alike.

    At the start of each call the workers agree to run as many steps as the one that wants fewest: up to the next step
    at which one of its callbacks looks, or none if one of its callbacks has decided to stop. So all workers stop after
    the same step, though their callbacks and clocks may differ.
    """

    def __init__(self, model, runner: Runner, feed: Feed, pace: Pace, kind: str):
        """`kind`: "train" or "test", as Keras names the hooks."""
        self._model, self._runner, self._feed, self._pace, self._kind = model, runner, feed, pace, kind
        self._stop_flag = {"train": "stop_training", "test": "stop_evaluating"}[kind]
        self._step = 0
        self._traced = False

    def run_epoch(self, callbacks) -> dict:
        """Runs an epoch, or less if a worker stops, with metrics from the start. Returns the logs of its last call."""
        self._runner.reset()
        before, after = (getattr(callbacks, f"on_{self._kind}_batch_{when}") for when in ("begin", "end"))
        logs: dict = {}
        for first, call in self._calls(callbacks):
            before(first)
            outcome = self._timed(call)
            steps = int(outcome.steps)
            if steps == 0:
                break
            self._step += steps
            logs = dict(sorted(_plain(outcome.logs)))
            after(first + steps - 1, logs)
            if self._stops and self._feed.share.workers == 1:
                break
        return logs

    def agree_to_stop(self) -> bool:
        """Whether any worker wants to stop, after whose word all want to."""
        if int(self._runner.agree(self._wanted(1, first=1))) == 0:
            setattr(self._model, self._stop_flag, True)
        return self._stops

    @property
    def _stops(self) -> bool:
        return bool(getattr(self._model, self._stop_flag))

    def _wanted(self, steps: int, first: int):
        """What this worker proposes. A stop takes effect after a step, as in Keras: an epoch has one at least."""
        return tf.constant(min(steps, int(first == 0)) if self._stops else steps, tf.int64)

    def _calls(self, callbacks):
        """`(first step, call)` for each traced call of the epoch."""
        if self._feed.steps is None or self._runner.has_logs:
            yield from self._single_calls()
            return
        iterator, start = self._feed.epoch(), self._step
        while (first := self._step - start) < self._feed.steps:
            left = self._feed.steps - first
            look = steps_until_look(callbacks.callbacks, self._step, self._kind) or left
            wanted = self._wanted(self._pace.steps(min(look, left)), first)
            yield first, lambda wanted=wanted: self._runner.many(iterator, wanted)

    def _single_calls(self):
        """One step a call: the data's end shows only when it ends, or the step returns logs of its own."""
        for step, (rows, batch) in enumerate(self._feed.epoch()):
            wanted = self._wanted(1, step)
            yield step, lambda wanted=wanted, rows=rows, batch=batch: self._one(wanted, rows, batch)
            if step + 1 == self._feed.steps:
                return

    def _one(self, wanted, rows, batch) -> Outcome:
        steps = self._runner.agree(wanted)
        return Outcome(steps, self._runner.one(rows, batch) if steps else {})

    def _timed(self, call) -> Outcome:
        """The outcome of a call, as NumPy values, and the pace of its steps taken in."""
        start = time.perf_counter()
        try:
            outcome = keras.tree.map_structure(np.asarray, call())
        except tf.errors.OutOfRangeError as error:
            raise DataError(
                f"The data ended before an epoch of {self._feed.steps} steps did. Give fewer steps_per_epoch, or none "
                "to train on all of it, or a data set that goes on: dataset.repeat()."
            ) from error
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            if self._feed.share.workers == 1:
                raise
            raise peer_lost(f"worker {self._feed.share.worker}", error) from error
        if outcome.steps == 0:
            setattr(self._model, self._stop_flag, True)
        elif self._traced:
            self._pace.observe((time.perf_counter() - start) / int(outcome.steps))
        self._traced = True  # The first call traces; its time says nothing about a step.
        return outcome


def peer_lost(worker: str, error: tf.errors.OpError) -> PeerLostError:
    """The user's error for what TensorFlow raises in `worker` when another one has gone."""
    return PeerLostError(
        f"{worker} lost a peer: {_lost_task(error.message)}. One worker cannot rejoin: run the whole job again."
    )


def _lost_task(message: str) -> str:
    """The task that TensorFlow's message names, or the line that says why."""
    task = re.search(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", message.partition("remote target")[2] or message)
    lines = message.strip().splitlines() or ["TensorFlow does not say why"]
    reason = next((line for line in lines if "aborted by" in line), lines[0])
    reason = re.sub(r"\{\{.*?\}\} ?", "", reason).strip().rstrip(".:")
    return f"{task[1]} {task[2]} ({reason})" if task else reason


def _plain(logs: dict):
    """`(name, value)` of all logs, those within a metric's dict included; scalars as floats."""
    for name, value in logs.items():
        if isinstance(value, dict):
            yield from _plain(value)
        else:
            yield name, float(value) if value.ndim == 0 else value
