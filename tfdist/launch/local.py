"""A cluster of processes on this machine: free loopback ports, and what each process finds in its environment."""

import os
import random
import socket
from collections.abc import Mapping

from tfdist.cluster import Cluster
from tfdist.errors import ClusterError

LOOPBACK = "127.0.0.1"
# Below the range from which the kernel takes the ports of outgoing connections (32768 on Linux), so that none
# of these takes a port between its choice here and the moment when TensorFlow listens on it, seconds later.
_PORTS = range(15000, 32000)


def local_clusters(workers: int) -> list[Cluster]:
    """The `Cluster` of each of `workers` worker tasks on loopback, by rank."""
    addresses = tuple(f"{LOOPBACK}:{port}" for port in free_ports(workers))
    return [Cluster({"worker": addresses}, "worker", rank) for rank in range(workers)]


def free_ports(count: int) -> list[int]:
    """`count` different ports of this machine that nothing listens on now. Raises: ClusterError if too few are."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(ports) == count:
            break
        if is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise ClusterError(f"{count} ports are needed and {len(ports)} are free in {_PORTS}. Start fewer workers.")
    return ports


def worker_environ(cluster: Cluster, environ: Mapping[str, str], gpus: int = 0) -> dict[str, str]:
    """`environ` for one of several workers on a machine: its TF_CONFIG, and its part of cores and GPUs.

    Variables that share out cores (TF_NUM_INTRAOP_THREADS, OMP_NUM_THREADS) or GPUs (CUDA_VISIBLE_DEVICES) are left
    as they are where they are set. If the machine has fewer than one of its `gpus` for each worker no worker sees
    any, for NCCL refuses two workers on one GPU; otherwise each gets as many.
    """
    threads = str(max(1, len(os.sched_getaffinity(0)) // cluster.num_workers))
    shares = {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}
    if gpus:
        each = gpus // cluster.num_workers
        first = cluster.task_index * each
        shares["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in range(first, first + each))
    return {**shares, **environ, "TF_CONFIG": cluster.to_tf_config()}


def is_free(port: int) -> bool:
    """Whether nothing listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
