"""Driving the traced calls of an epoch, and the callbacks between them."""

import time

import keras
import numpy as np
import tensorflow as tf

from tfdist.loop.failures import told_to_users
from tfdist.loop.feed import Feed
from tfdist.loop.pace import Pace, steps_until_look
from tfdist.loop.vote import Stopped, Turn, turns
from tfdist.step.run import Outcome, Runner


class Driver:
    """Runs epochs of train or evaluate steps. Every worker must drive alike.

    At the start of each call the workers agree to run as many steps as the one that wants fewest: up to the next step
    at which one of its callbacks looks, or none if one of its callbacks has decided to stop. So all workers stop after
    the same step, though their callbacks and clocks may differ.
    """

    def __init__(self, model, runner: Runner, feed: Feed, pace: Pace, kind: str, record=None):
        """`kind`: "train" or "test", as Keras names the hooks; `record`: is told what each call has seen."""
        self._model, self._runner, self._feed, self._pace, self._kind = model, runner, feed, pace, kind
        self._record = record
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
            if self._record is not None:
                self._record(*outcome.seen)
            logs = dict(sorted(_plain(outcome.logs)))
            after(first + steps - 1, logs)
            if self._stops and self._feed.share.workers == 1:
                break
        else:
            if self._record is not None and self._feed.steps is None and not self._stops:
                self._record.end_epoch()
        return logs

    def agree_to_stop(self) -> bool:
        """Whether any worker wants to stop, after whose word all want to."""
        wishes = self._runner.gather(tf.constant([self._stops], tf.int64))
        if np.any(wishes):
            setattr(self._model, self._stop_flag, True)
        return self._stops

    @property
    def _stops(self) -> bool:
        return bool(getattr(self._model, self._stop_flag))

    def _stops_at(self, step: int) -> bool:
        """Whether this worker wants to stop at `step` of an epoch: after one step at least, as in Keras."""
        return self._stops and step > 0

    def _calls(self, callbacks):
        """`(first step, call)` for each traced call of the epoch."""
        if not self._feed.is_known or self._runner.has_logs:
            yield from self._single_calls()
            return
        iterator, start = self._feed.epoch(), self._step
        while (first := self._step - start) < self._feed.steps:
            left = self._feed.steps - first
            look = steps_until_look(callbacks.callbacks, self._step, self._kind) or left
            steps = 1 if self._stops else self._pace.steps(min(look, left))
            wanted = tf.constant(0 if self._stops_at(first) else steps, tf.int64)
            yield first, lambda wanted=wanted: self._runner.many(iterator, wanted)

    def _single_calls(self):
        """One step a call: the data's end shows only when it ends, or the step returns logs of its own."""
        try:
            for step, turn in enumerate(turns(self._runner, self._feed, self._stops_at)):
                yield step, lambda turn=turn: self._one(turn)
        except Stopped:
            setattr(self._model, self._stop_flag, True)

    def _one(self, turn: Turn) -> Outcome:
        logs = self._runner.one(turn.rows, turn.batch)
        return Outcome(1, logs, (turn.rows.own[tf.newaxis], turn.ids))

    def _timed(self, call) -> Outcome:
        """The outcome of a call, as NumPy values, and the pace of its steps taken in."""
        start = time.perf_counter()
        with told_to_users(self._feed):
            outcome = keras.tree.map_structure(np.asarray, call())
        if outcome.steps == 0:
            setattr(self._model, self._stop_flag, True)
        elif self._traced:
            self._pace.observe((time.perf_counter() - start) / int(outcome.steps))
        self._traced = True  # The first call traces; its time says nothing about a step.
        return outcome


def _plain(logs: dict):
    """`(name, value)` of all logs, those within a metric's dict included; scalars as floats."""
    for name, value in logs.items():
        if isinstance(value, dict):
            yield from _plain(value)
        else:
            yield name, float(value) if value.ndim == 0 else value
