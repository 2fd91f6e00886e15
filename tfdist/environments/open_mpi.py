"""Processes started by Open MPI's `mpirun`: one worker per rank.

mpirun tells a process its rank, but not where the other ranks run. On one host they are on loopback; with
several the hosts come from TFDIST_HOSTS, or from Slurm or SageMaker where mpirun runs under these.

Source: Open MPI documentation, "Environment variables set for MPI applications"; PMIX_NAMESPACE, which is one
for all processes of a job, from the PMIx standard (PMIX_NSPACE).
"""

import collections
from collections.abc import Mapping

from tfdist.cluster import Cluster
from tfdist.environments import sagemaker
from tfdist.environments.nodelist import expand_nodes
from tfdist.environments.variables import HOSTS, base_port, job_port, needed_number, whole_number, worker_cluster
from tfdist.errors import ClusterError

_LEAVE = "mpirun sets it; leave it as it is."


def read(environ: Mapping[str, str]) -> Cluster | None:
    """The ranks of MPI_COMM_WORLD, None for a process that mpirun did not start. Raises: ClusterError."""
    size = whole_number(environ, "OMPI_COMM_WORLD_SIZE", lowest=1)
    if size is None:
        return None
    rank = needed_number(environ, "OMPI_COMM_WORLD_RANK", _LEAVE)
    local_size = needed_number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", _LEAVE, lowest=1)
    hosts = ["127.0.0.1"] * size if local_size == size else _host_of_each_rank(environ, size, local_size)
    if len(set(hosts)) > 1:
        _check_local_rank(environ, rank, hosts)
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or ""
    base = base_port(environ, job_port(job, size))
    return worker_cluster(hosts, [base + hosts[:index].count(host) for index, host in enumerate(hosts)], rank)


def _host_of_each_rank(environ, size, local_size):
    hosts, source = _hosts(environ)
    if len(hosts) == size:
        return hosts
    if len(hosts) * local_size == size:
        return [host for host in hosts for _ in range(local_size)]
    raise ClusterError(
        f"mpirun started {size} processes, {local_size} on this host, and {source} has {len(hosts)} hosts. Set {HOSTS} "
        "to one host per rank, in the order of the ranks, or to the hosts if each runs as many ranks."
    )


def _hosts(environ):
    if environ.get(HOSTS):
        return expand_nodes(environ[HOSTS].replace(" ", "")), HOSTS
    if environ.get("SLURM_JOB_NODELIST"):
        return expand_nodes(environ["SLURM_JOB_NODELIST"]), "SLURM_JOB_NODELIST"
    if sagemaker.hosts_of(environ):
        return sagemaker.hosts_of(environ), "SM_HOSTS"
    raise ClusterError(
        f"mpirun started {environ['OMPI_COMM_WORLD_SIZE']} processes on several hosts, and does not tell on which. Set "
        f"{HOSTS} to the hosts, separated by commas, in the order of the ranks, and pass it on with mpirun -x {HOSTS}."
    )


def _check_local_rank(environ, rank, hosts):
    local = whole_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK")
    if rank >= len(hosts) or local is None:
        return
    expected = collections.Counter(hosts[:rank])[hosts[rank]]
    if local != expected:
        raise ClusterError(
            f"Rank {rank} should be process {expected} on {hosts[rank]}, and mpirun says that it is process {local} on "
            f"its host. Start the ranks host by host with mpirun --map-by slot, or set {HOSTS} to one host per rank."
        )
