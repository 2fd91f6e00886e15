"""A cluster of processes on this machine: free loopback ports, and a TF_CONFIG for each worker."""

import random
import socket

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
    ports = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(ports) == count:
            break
        if _is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise ClusterError(f"{count} ports are needed and {len(ports)} are free in {_PORTS}. Start fewer workers.")
    return ports


def _is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
