"""What the scheduler says about the job: environment variables -> `Cluster`. The one place that reads them.

Understood are TF_CONFIG, Open MPI, SageMaker, Slurm and Kubernetes; in this order, so that what was set by
hand comes first, and mpirun before the job that it runs in. `TF_CONFIG='{}'` says that a process runs on its
own, whatever else is set.

Four variables of this project say what a platform does not:

* TFDIST_PORT: port of the first worker on each host; its neighbours take the next ones;
* TFDIST_HOSTS: hosts of the ranks, for mpirun on several hosts;
* TFDIST_WORKERS: number of pods, for Kubernetes; anywhere else it is only checked;
* TFDIST_SUBDOMAIN: the headless service of the pods, for Kubernetes.

Two more name a tf.data service: TFDIST_DATA_SERVICE its dispatcher, TFDIST_DATA_WORKERS its number of data workers.
TFDIST_FULL_WORKERS is the number of workers of an elastic job when none of its hosts is lost.
"""

import os
from collections.abc import Mapping

from tfdist.cluster import Cluster
from tfdist.environments import kubernetes, open_mpi, sagemaker, slurm
from tfdist.environments.elastic import read_full_workers
from tfdist.environments.service import read_data_service
from tfdist.environments.variables import WORKERS, whole_number
from tfdist.errors import ClusterError

__all__ = ["read_cluster", "read_data_service", "read_full_workers"]

_PLATFORMS = (open_mpi.read, sagemaker.read, slurm.read, kubernetes.read)


def read_cluster(environ: Mapping[str, str] = os.environ) -> Cluster:
    """The cluster that the environment describes, `Cluster.local()` if it describes none.

    Raises: ClusterError if what it says is malformed, contradicts itself, or makes the cluster smaller than the
    number of processes that were started.
    """
    text = environ.get("TF_CONFIG", "").strip()
    if text:
        cluster = Cluster.from_tf_config(text)
        if not cluster.is_local:
            _check_size(cluster, environ)
        return cluster
    cluster = next(filter(None, (read(environ) for read in _PLATFORMS)), Cluster.local())
    _check_size(cluster, environ)
    return cluster


def _check_size(cluster, environ):
    tasks = max(1, sum(map(len, cluster.tasks.values()))) + len(cluster.evaluators)
    for source, started in _numbers_of_processes(environ).items():
        if started and started > tasks:
            raise ClusterError(
                f"{source} says that {started} processes were started, and the cluster has {tasks}. Every process is "
                "one task of the cluster: list them all in TF_CONFIG, an evaluator too, or start fewer; "
                "TF_CONFIG='{}' says that this one trains alone."
            )


def _numbers_of_processes(environ):
    return {
        WORKERS: whole_number(environ, WORKERS),
        "OMPI_COMM_WORLD_SIZE": whole_number(environ, "OMPI_COMM_WORLD_SIZE"),
        # Of MPICH and of torchrun, whose clusters are not read: their ranks would each train alone.
        "PMI_SIZE": whole_number(environ, "PMI_SIZE"),
        "WORLD_SIZE": whole_number(environ, "WORLD_SIZE"),
        "SLURM_STEP_NUM_TASKS": whole_number(environ, "SLURM_STEP_NUM_TASKS"),
        "SM_HOSTS": len(sagemaker.hosts_of(environ)),
    }
