"""Driving the traced calls of an epoch, and the callbacks between them."""

import time

import keras
import tensorflow as tf

from tfdist.loop.feed import Feed
from tfdist.loop.pace import Pace, steps_until_look
from tfdist.loop.runner import Runner
from tfdist.step.run import Outcome


class Driver:
    """Runs epochs of train or evaluate steps.

    Every worker must drive alike. A worker whose callback wants to stop tells the others at the start of the next
    call, which then runs no step anywhere: all stop after the same step.
    """

    def __init__(self, model, runner: Runner, feed: Feed, pace: Pace, kind: str):
        """`kind`: "train" or "test", as Keras names the hooks."""
        self._model, self._runner, self._feed, self._pace, self._kind = model, runner, feed, pace, kind
        self._stop_flag = {"train": "stop_training", "test": "stop_evaluating"}[kind]
        self._step = 0
        self._seconds_per_step = 0.0
        self._traced = False

    def run_epoch(self, callbacks) -> dict:
        """Runs an epoch, or less if a worker stops. Returns the logs after its last step."""
        before, after = (getattr(callbacks, f"on_{self._kind}_batch_{when}") for when in ("begin", "end"))
        logs: dict = {}
        for first, steps, call in self._calls(callbacks):
            before(first)
            outcome = self._timed(call, steps)
            if outcome is None:
                break
            logs = outcome
            after(first + steps - 1, logs)
            if self._stops and self._feed.share.workers == 1:
                break
        return logs

    def agree_to_stop(self) -> bool:
        """Whether any worker wants to stop, after whose word all want to."""
        if self._feed.share.workers > 1:
            self._heed(self._runner.agree(self._vote()).numpy())
        return self._stops

    @property
    def _stops(self) -> bool:
        return bool(getattr(self._model, self._stop_flag))

    def _calls(self, callbacks):
        """`(first step, steps, call)` of each traced call of the epoch."""
        if self._feed.steps is None or self._runner.has_logs:
            yield from self._single_calls()
            return
        iterator, step = self._feed.epoch(), 0
        while step < self._feed.steps:
            left = self._feed.steps - step
            look = steps_until_look(callbacks.callbacks, self._step, self._kind) or left
            steps = self._pace.steps(min(look, left))
            yield step, steps, lambda n=steps: self._runner.many(iterator, tf.constant(n, tf.int64), self._vote())
            step += steps

    def _single_calls(self):
        """One step a call: the data's end shows only when it ends, or the step returns logs of its own."""
        for step, (rows, batch) in enumerate(self._feed.epoch()):
            yield step, 1, lambda rows=rows, batch=batch: self._one(rows, batch)
            if step + 1 == self._feed.steps:
                return

    def _one(self, rows, batch) -> Outcome:
        votes = self._runner.agree(self._vote())
        return Outcome(votes, {} if votes[0] > 0 else self._runner.one(rows, batch))

    def _timed(self, call, steps: int) -> dict | None:
        """The logs of a call; None if a worker had voted to stop and nothing was run."""
        start = time.perf_counter()
        outcome = call()
        if self._heed(outcome.votes.numpy()):
            return None
        logs = keras.tree.map_structure(lambda value: value.numpy(), outcome.logs)
        # The first call traces; its time says nothing about a step.
        self._seconds_per_step = (time.perf_counter() - start) / steps if self._traced else 0.0
        self._traced = True
        self._step += steps
        return {name: _plain(value) for name, value in logs.items()}

    def _vote(self):
        return tf.constant([float(self._stops), self._seconds_per_step], tf.float32)

    def _heed(self, votes) -> bool:
        """Takes in the sum of the workers' votes; returns whether to stop."""
        self._pace.observe(float(votes[1]) / self._feed.share.replicas)
        if votes[0] > 0:
            setattr(self._model, self._stop_flag, True)
        return bool(votes[0] > 0)


def _plain(value):
    return float(value) if getattr(value, "ndim", 0) == 0 else value
