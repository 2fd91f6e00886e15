"""`make_strategy`. It must be the first TensorFlow act of a process."""

import logging

import tensorflow as tf

from tfdist.cluster import Cluster
from tfdist.cluster.kinds import check_kind, choose_kind
from tfdist.environments import read_cluster
from tfdist.strategy.devices import count_devices, grow_gpu_memory, logical_devices
from tfdist.strategy.multiworker import make_multiworker

_log = logging.getLogger(__name__)


def make_strategy(
    kind: str = "auto", cluster: Cluster | None = None, *, startup_timeout: float = 300.0
) -> tf.distribute.Strategy:
    """The strategy for this process's place in a cluster. Every worker calls it at its start, with the same kind.

    Args:
      kind: "auto" takes multiworker if the cluster has several workers, mirrored if this process has several devices
        (GPUs, or logical CPUs where they were configured), else single. "single" is a OneDeviceStrategy, "mirrored" a
        MirroredStrategy over all devices of this process, "multiworker" a MultiWorkerMirroredStrategy. An evaluator is
        no part of the training cluster and gets a local one whatever the kind.
      cluster: by default the one that the environment describes.
      startup_timeout: seconds that this worker waits for the others.
    Raises: UserError (ConfigError, ClusterError, UnsupportedError) for a kind, a cluster or an order of calls that
      cannot work; PeerLostError if a peer does not appear in time.
    """
    cluster = read_cluster() if cluster is None else cluster
    check_kind(kind, cluster)
    grow_gpu_memory()
    devices, device_type = count_devices()
    kind, why = _decide(kind, cluster, devices)
    _log.info("Strategy %s: %s. This is %s, with %d %s.", kind, why, cluster.name, devices, device_type)
    if kind == "multiworker":
        return make_multiworker(cluster, startup_timeout)
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy(logical_devices())
    return tf.distribute.OneDeviceStrategy(logical_devices()[0])


def _decide(kind, cluster, devices):
    if kind == "auto" or cluster.is_evaluator:
        return choose_kind(cluster, devices)
    if kind == "multiworker" and cluster.num_workers == 1:
        _log.warning("Strategy multiworker, but the environment describes no other worker: this one trains alone.")
    return kind, "as asked"
