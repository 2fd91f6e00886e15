"""Which worker this process is under a strategy. Asks nobody: nothing here communicates."""

import tensorflow as tf

from tfdist.batching import Share
from tfdist.cluster import Cluster


def share_of(strategy: tf.distribute.Strategy) -> Share:
    """Which rows of every global batch the replicas of this process read under `strategy`, also one made elsewhere."""
    replicas = strategy.num_replicas_in_sync
    cluster = _cluster_of(strategy)
    return Share(cluster.rank, cluster.num_workers, replicas // cluster.num_workers)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes; a process under a local strategy is."""
    return _cluster_of(strategy).is_chief


def _cluster_of(strategy):
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver.cluster_spec():
        return Cluster.local()
    return Cluster(resolver.cluster_spec().as_dict(), resolver.task_type, resolver.task_id)
