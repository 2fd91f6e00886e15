"""`Cluster` and kind -> `tf.distribute.Strategy`. It must be the first TensorFlow act of a process."""

import logging

import tensorflow as tf

from tfdist.batching import Share
from tfdist.cluster import Cluster
from tfdist.compat.context import context_is_initialized
from tfdist.environments import read_cluster
from tfdist.errors import ClusterError, ConfigError, UnsupportedError

KINDS = ("auto", "single", "mirrored", "multiworker", "ps")
_log = logging.getLogger(__name__)


def make_strategy(
    kind: str = "auto", cluster: Cluster | None = None, *, startup_timeout: float = 300.0
) -> tf.distribute.Strategy:
    """The strategy for this process's place in `cluster` (by default the one of the environment)."""
    cluster = read_cluster() if cluster is None else cluster
    if kind not in KINDS:
        raise ConfigError(f"strategy {kind!r} is unknown. Take one of {', '.join(KINDS)}.")
    if kind == "auto":
        kind = _choose(cluster)
    _log.info("Strategy %s for %s of %d workers.", kind, cluster.name, cluster.num_workers)
    if kind == "ps":
        raise UnsupportedError("strategy 'ps' is not there yet. Use mirrored or multiworker.")
    if kind == "multiworker":
        return _make_multiworker(cluster)
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy([device.name for device in _local_devices()])
    return tf.distribute.OneDeviceStrategy(_local_devices()[0].name)


def share_of(strategy: tf.distribute.Strategy) -> Share:
    """Which rows of every global batch the replicas of this process read under `strategy`."""
    replicas = strategy.num_replicas_in_sync
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver:
        return Share(replicas_per_worker=replicas)
    tasks = resolver.cluster_spec().as_dict()
    cluster = Cluster(tasks, resolver.task_type, resolver.task_id)
    return Share(cluster.rank, cluster.num_workers, replicas // cluster.num_workers)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes."""
    return share_of(strategy).worker == 0


def _choose(cluster):
    if cluster.has_ps:
        return "ps"
    if cluster.num_workers > 1 and not cluster.is_evaluator:
        return "multiworker"
    return "mirrored" if len(_local_devices()) > 1 else "single"


def _local_devices():
    return tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")


def _make_multiworker(cluster):
    if context_is_initialized():
        raise ClusterError("TensorFlow was used before the strategy was made. Make the strategy first.")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({kind: list(addresses) for kind, addresses in cluster.tasks.items()}),
        task_type=cluster.task_type,
        task_id=cluster.task_index,
        rpc_layer="grpc",
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
