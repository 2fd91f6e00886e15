"""An evaluator beside a training: it evaluates each new checkpoint and keeps the best weights.

It is no part of the cluster and has a strategy of its own; of the training's folder it only reads `checkpoints/` and
`events.jsonl`. What it leaves: `metrics.jsonl`, `tensorboard/`, `best.weights.h5`, which stock Keras loads, and
`best.json`.
"""

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable

from tfdist.checkpoint import Checkpoints
from tfdist.cluster import Cluster
from tfdist.config import Experiment
from tfdist.errors import CheckpointError, ConfigError, PeerLostError
from tfdist.experiment import batch_size_of, prepare_task, read_data
from tfdist.loop import evaluate
from tfdist.snapshot.files import WEIGHTS
from tfdist.strategy import make_strategy
from tfdist.workdir import Workdir, read_lines
from tfdist.writers import Writer, make_writer

_log = logging.getLogger(__name__)
_POLL_SECONDS = 2.0


def run(experiment: Experiment, cluster: Cluster, training: Workdir, own: Workdir) -> None:
    """Evaluates what the training in the workdir `training` saves, until it has ended; the results go into `own`.

    A second run goes on: it does not evaluate again what it has.

    Raises: PeerLostError if there is no sign of life of the training for `evaluator_timeout`; ConfigError if
        `best_metric` is none of the evaluation's.
    """
    settings = experiment.checkpoint
    held_out, model = _prepare(experiment, cluster)
    size = batch_size_of(experiment, held_out)
    with contextlib.closing(make_writer(dict.fromkeys(["jsonl", *experiment.writers]), own.path)) as writer:
        results = Results(own, writer, settings.best_metric, settings.best_mode)
        follow(
            training,
            load=lambda directory: _load(model, os.path.join(directory, WEIGHTS)),
            evaluate=lambda step: results.add(step, evaluate(model, held_out, batch_size=size, verbose=0), model),
            done=results.steps,
            timeout=settings.evaluator_timeout,
        )
    print(f"The training has ended. {results}\nResults in {own.path}")


def _load(model, weights):
    try:
        model.load_weights(weights)
    except ValueError as error:
        raise ConfigError(
            f"{weights} is of another model than the settings describe: {str(error).splitlines()[0]} Start the "
            "evaluator with the settings of the training."
        ) from error


def _prepare(experiment, cluster):
    """The held-out data, and the model without an optimizer, whose variables would be in the way."""
    strategy = make_strategy("auto", cluster)
    task = prepare_task(experiment)
    held_out = read_data(task.eval_data())
    with strategy.scope():
        model = task.make_model()
        model.compile(None, **task.objective())
    if not model.built:
        evaluate(model, held_out, batch_size=batch_size_of(experiment, held_out), steps=1, verbose=0)
    return held_out, model


def follow(
    training: Workdir,
    load: Callable[[str], None],
    evaluate: Callable[[int], None],
    done: set[int],
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Has the newest checkpoint evaluated, again and again, until the training has ended and its last one is.

    Args:
        load: takes what it needs of the files in the directory that it is given.
        evaluate: evaluates what was loaded, of the step that it is given.
        done: the steps that are evaluated already; those that follow are added.
        timeout: seconds without a new line in the training's files or a new checkpoint.
        clock, wait: seconds, and what lets them pass.

    Raises: PeerLostError after the timeout.
    """
    checkpoints = Checkpoints(training.file("checkpoints"))
    _log.info("Waiting for checkpoints in %s.", checkpoints.path)
    signs, since, passed_over = None, clock(), set[int]()
    while True:
        ended = training.has_ended()  # asked first: what was saved before the end is listed then
        steps = checkpoints.steps()
        newest = next((step for step in steps if step not in passed_over), None)
        if newest is not None and newest not in done:
            # A second time, for one that was removed meanwhile may have been replaced by another of its step.
            if _loaded(checkpoints, newest, load) or _loaded(checkpoints, newest, load):
                evaluate(newest)
                done.add(newest)
            else:
                passed_over.add(newest)
        elif ended:
            return
        elif signs != (signs := (steps, training.sizes())):
            since = clock()
        elif clock() - since > timeout:
            raise _lost(training, timeout)
        else:
            wait(_POLL_SECONDS)


def _loaded(checkpoints, step, load):
    """Whether the checkpoint could be loaded: it may be damaged, or have been removed meanwhile."""
    try:
        with checkpoints.opened(step) as directory:
            load(directory)
    except (CheckpointError, OSError) as error:
        _log.warning("The checkpoint of step %d could not be read: %s", step, error)
        return False
    return True


def _lost(training, timeout):
    return PeerLostError(
        f"{training.path}: no sign of life of the training for {timeout:g} s, and it has not ended. See what became of "
        "it and start the evaluator again; it goes on. Where saves are further apart, set checkpoint.evaluator_timeout."
    )


class Results:
    """What an evaluator has found out, in its folder.

    Args:
        own: the folder.
        writer: for the metrics; of it, `metrics.jsonl` says what is done.
        metric, mode: what is best; a `val_` before the metric's name, as a training has it, is left out.
    """

    def __init__(self, own: Workdir, writer: Writer, metric: str, mode: str):
        self._own, self._writer = own, writer
        self._metric, self._mode = metric.removeprefix("val_"), mode
        self.steps: set[int] = {line["step"] for line in read_lines(own.file("metrics.jsonl"))}
        best = own.read_json("best.json")
        self._best = best if (best.get("metric"), best.get("mode")) == (self._metric, mode) else {}

    def add(self, step: int, logs: dict, model) -> None:
        """Writes the metrics of a step, and keeps the model's weights if they are the best so far."""
        if self._metric not in logs:
            raise ConfigError(
                f"checkpoint.best_metric={self._metric!r}: the evaluation has {', '.join(logs)}. Take one of these, or "
                "add it to the task's metrics."
            )
        if self._is_better(logs[self._metric]):
            with self._own.whole("best.weights.h5") as path:
                model.save_weights(path)
            self._best = {"step": step, "metric": self._metric, "mode": self._mode, **logs}
            self._own.write_json("best.json", self._best)
        self._writer.write_scalars(step, logs)
        self._writer.flush()

    def __str__(self):
        if not self._best:
            return "No checkpoint was evaluated to a number."
        value, step = self._best[self._metric], self._best["step"]
        return f"{len(self.steps)} checkpoints evaluated, best {self._metric} {value:.4f} after step {step}."

    def _is_better(self, value):
        if math.isnan(value) or not self._best:
            return not math.isnan(value)
        best = self._best[self._metric]
        return value < best if self._mode == "min" else value > best
