"""`Cluster`: the tasks of a job and which of them this process is."""

from tfdist.cluster.cluster import Cluster
from tfdist.cluster.names import task_name

__all__ = ["Cluster", "task_name"]
