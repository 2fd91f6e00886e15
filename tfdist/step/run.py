"""Many steps in one traced call, on all replicas, and what the workers agree on in between."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat.losses import losses_as_on_one_device
from tfdist.compat.seeds import seeds_by_replica
from tfdist.step.custom import synchronised_optimizers
from tfdist.step.reduce import sum_over_replicas


class Outcome(NamedTuple):
    """What a call of many steps returns: how many it ran (int64 scalar), and the logs after them (scalars by name)."""

    steps: tf.Tensor
    logs: dict


class Runner(NamedTuple):
    """Calls on all replicas of all workers. Every worker must make the same ones, in the same order.

    Attributes:
        many: `(iterator, steps) -> Outcome`: takes as many batches from the iterator as the worker that wants fewest
            (int64 scalar tensor); none if one wants to stop.
        one: `(rows, batch) -> logs`: takes a batch that the caller has read.
        agree: `steps -> steps`: what the worker that wants fewest wants.
        reset: `() -> None`: sets the model's metrics to their start.
        has_logs: whether the step returns logs of its own, so that steps run one by one.
    """

    many: Callable
    one: Callable
    agree: Callable
    reset: Callable
    has_logs: bool


def make_runner(model, share: Share, replica_step, batch_spec, *, has_logs: bool) -> Runner:
    """The calls that run `replica_step`.

    Each is traced once, whatever the shapes of a worker's batches: the keys by which collective operations find each
    other are counted while tracing, so that a worker that traces once more than another would hang.

    Args:
        share: this worker's share of a batch.
        batch_spec: nested `tf.TensorSpec` of the batches of all workers.
        has_logs: whether the step returns logs; else they are the results of the model's metrics.
    """
    strategy = model.distribute_strategy

    def many(iterator, steps):
        with _tracing(model, strategy):
            steps = fewest(strategy, share, steps)

            def body(step):
                strategy.run(replica_step, args=next(iterator))
                return (step + 1,)

            tf.while_loop(lambda step: step < steps, body, (tf.zeros_like(steps),), parallel_iterations=1)
            return Outcome(steps, metric_results(model, strategy))

    def one(rows, batch):
        with _tracing(model, strategy):
            logs = _first(strategy, strategy.run(replica_step, args=(rows, batch)))
            results = metric_results(model, strategy)
            # Keras's rule: a step that returns the metrics' results means the metrics.
            return logs if has_logs and set(logs) != set(results) else results

    def agree(steps):
        return fewest(strategy, share, steps)

    def reset():
        # In a replica: outside of it, assigning a metric's variable ends in an all-reduce of its value.
        strategy.run(_reset_metrics, args=(model,))

    rows_spec = tf.TensorSpec((), tf.int64)
    return Runner(
        _traced(model, many), _traced(model, one, (rows_spec, batch_spec)), _traced(model, agree),
        _traced(model, reset), has_logs,
    )  # fmt: skip


def _reset_metrics(model) -> None:
    """Metrics start as they do, on one replica; on the others at zero, since their values are summed."""
    model.reset_metrics()
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
        for variable in model.metrics_variables:
            variable.assign(tf.where(first, variable.value, tf.zeros_like(variable.value)))


def _traced(model, function, signature=None):
    return function if model.run_eagerly else tf.function(function, autograph=False, input_signature=signature)


def fewest(strategy, share: Share, steps):
    """The smallest of all workers' `steps` (int64 scalar)."""
    if share.workers == 1:
        return steps
    mine = steps * tf.one_hot(share.worker, share.workers, dtype=steps.dtype)
    summed = _first(strategy, strategy.run(lambda value: sum_over_replicas([value])[0], args=(mine,)))
    return tf.reduce_min(summed) // share.replicas_per_worker


def metric_results(model, strategy) -> dict:
    """The model's metric results over all workers, in one all-reduce; nothing is assigned."""

    def replica_results():
        variables = model.metrics_variables
        summed = sum_over_replicas([tf.convert_to_tensor(variable.value) for variable in variables])
        with keras.StatelessScope(list(zip(variables, summed))):
            return model.get_metrics_result()

    return _first(strategy, strategy.run(replica_results))


def _first(strategy, values):
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], values)


@contextlib.contextmanager
def _tracing(model, strategy):
    with losses_as_on_one_device(), seeds_by_replica(strategy), synchronised_optimizers(model):
        yield
