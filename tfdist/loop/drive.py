"""Driving the traced calls of an epoch, and the callbacks between them."""

import functools
import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from tfdist.heartbeat import beat
from tfdist.loop.course import Course
from tfdist.loop.failures import told_to_users
from tfdist.loop.feed import Feed
from tfdist.loop.pace import Pace, steps_until_look
from tfdist.loop.pauses import Pauses
from tfdist.loop.vote import Stopped, Turn, turns
from tfdist.progress import Pause
from tfdist.step.run import Outcome, Runner


class Driver:
    """Runs epochs of train or evaluate steps. Every worker must drive alike.

    At the start of each call the workers agree to run as many steps as the one that wants fewest: up to the next step
    at which one of its callbacks looks, or none if one of its callbacks wants a pause. So all workers pause and stop
    after the same step, though their callbacks and clocks may differ.
    """

    def __init__(self, model, runner: Runner, feed: Feed, pace: Pace, kind: str, course: Course, pauses: Pauses):
        """`kind`: "train" or "test", as Keras names the hooks."""
        self._model, self._runner, self._feed, self._pace, self._kind = model, runner, feed, pace, kind
        self._course, self._pauses = course, pauses
        self._stop_flag = {"train": "stop_training", "test": "stop_evaluating"}[kind]
        self._traced = False

    def run_epoch(self, callbacks, record=None) -> None:
        """Runs what is left of an epoch, or less if a worker stops; metrics begin anew at its start.

        `record`: is told what each call has seen.
        """
        if self._step == 0:
            self._runner.reset()
        before, after = (getattr(callbacks, f"on_{self._kind}_batch_{when}") for when in ("begin", "end"))
        begun = None
        for wish, call in self._calls(callbacks):
            if begun != self._step and wish is None:
                begun = self._step
                before(begun)
            outcome = self._timed(call)
            if outcome.steps == Pause.STOP:
                self._stop()
                return
            if outcome.steps < 0:
                self._pauses.grant(Pause(int(outcome.steps)))
                continue
            self._course.take_in(outcome)
            beat(self._course.progress.total if self._kind == "train" else None)
            if record is not None:
                record(*outcome.seen)
            after(self._step - 1, self._course.logs)
            if self._stops and self._feed.share.workers == 1:
                return
        if record is not None and self._feed.steps is None and not self._stops:
            record.end_epoch()

    def agree_to_stop(self) -> bool:
        """Whether any worker wants to stop, after whose word all want to."""
        if np.any(self._runner.gather(tf.constant([self._stops], tf.int64))):
            self._stop()
        return self._stops

    def agree_to_go_back(self) -> None:
        """Lets the model go back if any worker wants it: before the metrics of an epoch are said to be final."""
        wishes = self._pauses.wish() == Pause.GO_BACK
        if np.any(self._runner.gather(tf.constant([wishes], tf.int64))):
            self._pauses.grant(Pause.GO_BACK)

    def reset_metrics(self) -> None:
        """Has the metrics begin anew."""
        self._runner.reset()

    @property
    def _step(self) -> int:
        return self._course.progress.step

    @property
    def _stops(self) -> bool:
        return bool(getattr(self._model, self._stop_flag))

    def _stop(self) -> None:
        setattr(self._model, self._stop_flag, True)

    def _wish(self) -> Pause | None:
        """What this worker wants before the next step: to stop after one step at least, as in Keras."""
        wish = self._pauses.wish()
        return Pause.STOP if wish is None and self._stops and self._step > 0 else wish

    def _calls(self, callbacks) -> Iterator[tuple[Pause | None, Callable[[], Outcome]]]:
        """What this worker wants before each traced call of the rest of the epoch, and the call."""
        if not self._feed.is_known or self._runner.has_logs:
            yield from self._single_calls()
            return
        iterator = self._feed.epoch()
        while self._step < self._feed.steps:
            wish = self._wish()
            wanted = tf.constant(self._steps(callbacks) if wish is None else wish, tf.int64)
            yield wish, functools.partial(self._runner.many, iterator, wanted)

    def _steps(self, callbacks) -> int:
        """Steps until this worker has to look."""
        left = self._feed.steps - self._step
        look = steps_until_look(callbacks.callbacks, self._course.progress.total, self._kind) or left
        return 1 if self._stops else self._pace.steps(min(look, left))

    def _single_calls(self) -> Iterator[tuple[None, Callable[[], Outcome]]]:
        """The same, one step a call and once all workers want to go on.

        So it goes where the data's end shows only when it ends, or the step returns logs of its own.
        """
        try:
            for turn in turns(self._runner, self._feed, self._step, self._wish, self._pauses.grant):
                yield None, functools.partial(self._one, turn)
        except Stopped:
            self._stop()

    def _one(self, turn: Turn) -> Outcome:
        logs = self._runner.one(turn.rows, turn.batch)
        return Outcome(1, turn.rows.all, logs, (turn.rows.own[tf.newaxis], turn.ids))

    def _timed(self, call) -> Outcome:
        """The outcome of a call, as NumPy values, and the pace of its steps taken in."""
        start = time.perf_counter()
        with told_to_users(self._feed):
            outcome = keras.tree.map_structure(np.asarray, call())
        if outcome.steps > 0:
            if self._traced:
                self._pace.observe((time.perf_counter() - start) / int(outcome.steps))
            self._traced = True  # The first call traces; its time says nothing about a step.
        return outcome
