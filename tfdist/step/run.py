"""Many steps in one traced call, on all replicas, and what the workers agree on in between."""

import contextlib
from typing import NamedTuple

import keras
import tensorflow as tf

from tfdist.compat.losses import losses_as_on_one_device
from tfdist.compat.seeds import seeds_by_replica
from tfdist.step.custom import synchronised_optimizers
from tfdist.step.reduce import sum_over_replicas

class Outcome(NamedTuple):
    """What a call returns: the sum of the replicas' votes (a float32 vector), and the logs (scalars by name)."""

    votes: tf.Tensor
    logs: dict


def make_runner(model, strategy, replica_step, *, has_logs: bool):
    """Calls that run `replica_step` on all replicas of all workers.

    Args:
        has_logs: whether the step returns logs; else they are the results of the model's metrics.

    Returns:
        `(many, one, agree)`. `many(iterator, steps, vote)` takes `steps` (int64 scalar tensor) batches from the
        iterator, none if a vote, whose first number is 1.0 to stop and else 0.0, says so; `one(rows, batch)` takes a batch that the caller has read. Both
        return an `Outcome`. `agree(vote)` returns the sum of the votes. Every worker must make the same calls with the
        same `steps`.
    """

    def many(iterator, steps, vote):
        with _tracing(model, strategy):
            votes = sum_of_workers(strategy, vote)
            steps = tf.where(votes[0] > 0, tf.zeros_like(steps), steps)

            def body(step):
                strategy.run(replica_step, args=next(iterator))
                return (step + 1,)

            tf.while_loop(lambda step: step < steps, body, (tf.zeros_like(steps),), parallel_iterations=1)
            return Outcome(votes, metric_results(model, strategy))

    def one(rows, batch):
        with _tracing(model, strategy):
            logs = _first(strategy, strategy.run(replica_step, args=(rows, batch)))
            return logs if has_logs else metric_results(model, strategy)

    def agree(vote):
        return sum_of_workers(strategy, vote)

    calls = (many, one, agree)
    return tuple(call if model.run_eagerly else tf.function(call, autograph=False) for call in calls)


def sum_of_workers(strategy, vote):
    """The sum of a float32 vector over the workers, each counted once for each of its replicas."""
    return _first(strategy, strategy.run(lambda value: sum_over_replicas([value])[0], args=(vote,)))


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
