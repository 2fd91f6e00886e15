"""What the workers tell each other between steps."""

import numpy as np
import tensorflow as tf

from tfdist.batching import Share
from tfdist.step.reduce import sum_over_replicas


def gather(strategy, share: Share, values):
    """The `values` of every worker, int64 [workers, k] of int64 [k]. All workers must call it, while tracing alike."""
    if share.workers == 1:
        return values[tf.newaxis]

    def in_replica(values):
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == share.first_replica
        row = tf.one_hot(share.worker, share.workers, dtype=values.dtype)
        return sum_over_replicas([row[:, tf.newaxis] * tf.where(first, values, 0)])[0]

    return first_of(strategy, strategy.run(in_replica, args=(values,)))


def gather_now(strategy, share: Share, values: list[int]) -> np.ndarray:
    """`gather` of integers, outside of a traced function."""
    traced = tf.function(lambda values: gather(strategy, share, values), autograph=False)
    return traced(tf.constant(values, tf.int64)).numpy()


def first_of(strategy, values):
    """The first local replica's of per-replica `values`."""
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], values)
