"""What the metrics have counted so far in an epoch, replica by replica."""

import logging

import numpy as np
import tensorflow as tf

from tfdist.compat import trainer
from tfdist.compat.weights_file import as_array
from tfdist.snapshot.replicas import copies_of, local_replicas

_log = logging.getLogger(__name__)

Counts = list[np.ndarray]
"""The values of all metrics' variables on one replica; what the metrics say is computed of their sums."""


def take_metrics(model) -> list[Counts]:
    """Those of each replica of this worker, by rank. It communicates with no other worker."""
    copies = _copies(model)
    with tf.device("CPU:0"):
        return [
            [np.array(as_array(tf.identity(of[replica]))) for of in copies]
            for replica in local_replicas(model.distribute_strategy)
        ]


def put_metrics(model, replicas: list[Counts], first_replica: int) -> None:
    """Puts back what the replicas of all workers had counted.

    As many replicas as then each get their own; of another number the first gets the sum and the others zeros. Metrics
    that are not those of then start anew, with a warning.

    Args:
        replicas: of all workers, by rank.
        first_replica: rank of this worker's first one.
    """
    copies = _copies(model)
    if any([value.shape for value in of] != [tuple(each[0].shape) for each in copies] for of in replicas):
        _log.warning("The metrics are not those of the checkpoint: in this epoch they do not count what was before.")
        return
    counts = _spread(replicas, model.distribute_strategy.num_replicas_in_sync)
    for replica in local_replicas(model.distribute_strategy):
        for of, value in zip(copies, counts[first_replica + replica]):
            of[replica].assign(value)


def _spread(replicas: list[Counts], number: int) -> list[Counts]:
    if len(replicas) == number:
        return replicas
    total = [np.sum(values, axis=0, dtype=values[0].dtype) for values in zip(*replicas)]
    return [total] + [[np.zeros_like(value) for value in total]] * (number - 1)


def _copies(model) -> list[tuple]:
    """The copies of each variable on this worker's replicas."""
    return [copies_of(model.distribute_strategy, variable) for variable in trainer.metrics_state_of(model)]
