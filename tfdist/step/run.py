"""Many steps in one traced call, on all replicas, and what the workers agree on in between."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat.losses import losses_as_on_one_device
from tfdist.compat.seeds import seeds_by_replica
from tfdist.step.agree import first_of, gather
from tfdist.step.custom import synchronised_optimizers
from tfdist.step.parts import Rows
from tfdist.step.reduce import sum_over_replicas


class Outcome(NamedTuple):
    """What a call of many steps returns.

    Attributes:
        steps: how many it ran, an int64 scalar; a `tfdist.progress.Pause` if a worker wanted one.
        rows: rows of these global batches together, an int64 scalar.
        logs: scalars by name, after them.
        seen: `(counts, ids)` of this worker: rows of each step (int64 [steps]) and their ids, one step's after the
            other's (int64 [sum of counts]); empty where they are not asked for.
    """

    steps: Any
    rows: Any
    logs: dict
    seen: tuple = ()


class Runner(NamedTuple):
    """Calls on all replicas of all workers. Every worker must make the same ones, in the same order.

    Attributes:
        many: `(iterator, steps) -> Outcome`: takes as many batches from the iterator as the worker that wants fewest
            (int64 scalar tensor); none if one wants a `tfdist.progress.Pause`, which is 0 or less.
        one: `(rows, batch) -> logs`: takes a batch that the caller has read, with the `Rows` of it.
        gather: `values -> [workers, k]`: the int64 [k] of each worker.
        reset: `() -> None`: sets the model's metrics to their start.
        has_logs: whether the step returns logs of its own, so that steps run one by one.
        trace_one: `() -> None`: traces `one`, if it is to be traced at all, and runs nothing.
    """

    many: Callable
    one: Callable
    gather: Callable
    reset: Callable
    has_logs: bool
    trace_one: Callable


def make_runner(model, share: Share, replica_step, batch_spec, *, has_logs: bool, records: bool) -> Runner:
    """The calls that run `replica_step`.

    Each is traced once, whatever the shapes of a worker's batches: the keys by which collective operations find each
    other are counted while tracing, so that a worker that traces once more than another would hang.

    Args:
        share: this worker's share of a batch.
        batch_spec: nested `tf.TensorSpec` of the batches of all workers.
        has_logs: whether the step returns logs; else they are the results of the model's metrics.
        records: whether outcomes have `seen`.
    """
    strategy = model.distribute_strategy

    def many(iterator, steps):
        with _tracing(model, strategy):
            steps = tf.reduce_min(gather(strategy, share, steps[tf.newaxis]))
            seen = (_growing(), _growing()) if records else ()

            def body(step, total, seen):
                rows, ids, batch = next(iterator)
                own = tf.size(ids, tf.int64)
                strategy.run(replica_step, args=(Rows(rows, own), batch))
                values = zip(seen, (own[tf.newaxis], ids))
                return step + 1, total + rows, tuple(array.write(array.size(), value) for array, value in values)

            none = tf.zeros_like(steps)
            start = (none, none, seen)
            _, rows, seen = tf.while_loop(lambda step, *_: step < steps, body, start, parallel_iterations=1)
            return Outcome(steps, rows, metric_results(model, strategy), tuple(_joined(array) for array in seen))

    def one(rows, batch):
        with _tracing(model, strategy):
            logs = first_of(strategy, strategy.run(replica_step, args=(rows, batch)))
            results = metric_results(model, strategy)
            # Keras's rule: a step that returns the metrics' results means the metrics.
            return logs if has_logs and set(logs) != set(results) else results

    def gather_values(values):
        return gather(strategy, share, values)

    def reset():
        # In a replica: outside of it, assigning a metric's variable ends in an all-reduce of its value.
        strategy.run(_reset_metrics, args=(model,))

    count = tf.TensorSpec((), tf.int64)
    traced_one = _traced(model, one, (Rows(count, count), batch_spec))
    trace_one = getattr(traced_one, "get_concrete_function", _nothing)
    return Runner(
        _traced(model, many), traced_one, _traced(model, gather_values), _traced(model, reset), has_logs, trace_one
    )


def _nothing() -> None:
    """What there is to trace of a function that is not."""


def _growing() -> tf.TensorArray:
    return tf.TensorArray(tf.int64, size=0, dynamic_size=True, infer_shape=False, element_shape=(None,))


def _joined(array: tf.TensorArray):
    """The vectors of an array in one, which may be empty."""
    return tf.cond(array.size() > 0, array.concat, lambda: tf.zeros([0], tf.int64))


def _reset_metrics(model) -> None:
    """Metrics start as they do, on one replica; on the others at zero, since their values are summed."""
    model.reset_metrics()
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
        for variable in model.metrics_variables:
            variable.assign(tf.where(first, variable.value, tf.zeros_like(variable.value)))


def _traced(model, function, signature=None):
    return function if model.run_eagerly else tf.function(function, autograph=False, input_signature=signature)


def metric_results(model, strategy) -> dict:
    """The model's metric results over all workers, in one all-reduce; nothing is assigned."""

    def replica_results():
        variables = model.metrics_variables
        summed = sum_over_replicas([tf.convert_to_tensor(variable.value) for variable in variables])
        with keras.StatelessScope(list(zip(variables, summed))):
            return model.get_metrics_result()

    return first_of(strategy, strategy.run(replica_results))


@contextlib.contextmanager
def _tracing(model, strategy):
    with losses_as_on_one_device(), seeds_by_replica(strategy), synchronised_optimizers(model):
        yield
