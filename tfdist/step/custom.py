"""Models that override `train_step`: run as they are, with the gradients synchronised as in the built-in step.

Their `train_step` is written for one device. It sees a replica's rows, its loss is the mean over them, and each call of
an optimizer's `apply` weighs the gradients with the replica's share of the global batch, sums them over the replicas
and applies them everywhere, so that clipping sees the gradient of the global batch.
"""

import contextlib
import threading

import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat import seeds, trainer
from tfdist.compat.optimizers import trained_variables
from tfdist.step.parts import Rows, replica_batch
from tfdist.step.reduce import replica_share, sum_over_replicas
from tfdist.step.update import update

_local = threading.local()


def make_custom_replica_step(model, share: Share, seed_generator):
    """As `make_replica_step`, but returns the logs of `model.train_step`, averaged over the replicas by rows."""

    def replica_step(rows: Rows, worker_batch):
        seeds.share_global_generator(seed_generator)
        batch = replica_batch(worker_batch, rows, share)
        _local.weight = batch.weight
        logs = model.train_step(batch.data)
        _average_statistics(trainer.statistics_of(model), batch.weight)
        return average_logs(logs, batch.weight)

    return replica_step


@contextlib.contextmanager
def synchronised_optimizers(model):
    """While it lasts (the tracing of a step), `apply` of the model's optimizers acts on the global gradient."""
    optimizers = trainer.optimizers_of(model)
    for optimizer in optimizers:
        optimizer.__dict__["apply"] = _synchronised_apply(optimizer)
    try:
        yield
    finally:
        for optimizer in optimizers:
            del optimizer.__dict__["apply"]


def average_logs(logs: dict, weight) -> dict:
    """Scalars of each replica, averaged with the replicas' `weight`: float32."""
    flat = dict(_flat(logs))
    values = [tf.cast(value, tf.float32) * weight for value in flat.values()]
    return dict(zip(flat, sum_over_replicas(values)))


def _flat(logs: dict):
    """`(name, value)` of all logs, those of compiled metrics, which Keras nests, included."""
    for name, value in sorted(logs.items()):
        yield from _flat(value) if isinstance(value, dict) else [(name, value)]


def _synchronised_apply(optimizer):
    def apply(gradients, trainable_variables=None):
        variables = trained_variables(optimizer) if trainable_variables is None else list(trainable_variables)
        _build(optimizer, variables)
        weight = _local.weight
        present = [tf.convert_to_tensor(g) * tf.cast(weight, g.dtype) for g in gradients if g is not None]
        summed = iter(sum_over_replicas(present))
        update(optimizer, [None if g is None else next(summed) for g in gradients], variables, [])

    return apply


def _build(optimizer, variables: list) -> None:
    """Makes the variables of an optimizer whose first use is in a `train_step`, on all replicas at once."""

    def build(_strategy):
        with tf.init_scope():
            optimizer.build(variables)

    if not optimizer.built:
        tf.distribute.get_replica_context().merge_call(build)


def _average_statistics(statistics: list, weight) -> None:
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return
    values = [tf.convert_to_tensor(variable.value) for variable in statistics]
    summed = sum_over_replicas([value * replica_share(value, weight) for value in values])
    update(None, [], [], list(zip(statistics, summed)))
