"""Reading single environment variables, and what the adapters of the platforms share."""

import zlib
from collections.abc import Mapping, Sequence

from tfdist.cluster import Cluster
from tfdist.cluster.address import MAX_PORT, join_address
from tfdist.errors import ClusterError

# What no platform tells. The package's docstring documents them for users.
WORKERS = "TFDIST_WORKERS"
HOSTS = "TFDIST_HOSTS"
PORT = "TFDIST_PORT"
SUBDOMAIN = "TFDIST_SUBDOMAIN"

DEFAULT_PORT = 2222
# Ports for a job are chosen in this range, below the one that the kernel uses for outgoing connections.
_FIRST_PORT, _LAST_PORT = 12000, 32000
RUN_ALONE = "To run this process on its own, set TF_CONFIG='{}'."


def whole_number(environ: Mapping[str, str], name: str, lowest: int = 0) -> int | None:
    """The variable as a number of at least `lowest`; None if it is not set or blank. Raises: ClusterError."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < lowest:
        raise ClusterError(f"{name}={text!r} is not a whole number of at least {lowest}. Correct or unset it.")
    return int(text)


def needed_number(environ: Mapping[str, str], name: str, why: str, lowest: int = 0) -> int:
    """`whole_number` that has to be there. Raises: ClusterError that says `why`."""
    number = whole_number(environ, name, lowest)
    if number is None:
        raise ClusterError(f"{name} is not set. {why}")
    return number


def base_port(environ: Mapping[str, str], default: int = DEFAULT_PORT) -> int:
    """The port of the first task on each host: TFDIST_PORT, else `default`. Raises: ClusterError."""
    port = whole_number(environ, PORT, lowest=1)
    if port is not None and port > MAX_PORT:
        raise ClusterError(f"{PORT}={port} is not a port: ports are in [1, {MAX_PORT}]. Choose a free one.")
    return default if port is None else port


def job_port(job: str, count: int) -> int:
    """A first of `count` ports that follows from the job's name, so that every task of it finds the same."""
    return _FIRST_PORT + zlib.crc32(job.encode()) % (_LAST_PORT - _FIRST_PORT - count)


def worker_cluster(hosts: Sequence[str], ports: Sequence[int], rank: int) -> Cluster:
    """A cluster of one worker per rank, `hosts[rank]:ports[rank]`; a single worker needs no peers and is local."""
    if len(hosts) == 1 and rank == 0:
        return Cluster.local()
    addresses = tuple(join_address(host, port) for host, port in zip(hosts, ports, strict=True))
    return Cluster({"worker": addresses}, "worker", rank)
