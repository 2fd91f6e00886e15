"""Pods of Kubernetes: an indexed Job, a JobSet or a StatefulSet, one worker per pod.

Kubernetes tells a pod its own index and nothing of the others, so the manifest gives TFDIST_WORKERS and,
but for a JobSet, TFDIST_SUBDOMAIN; the pods' names follow from their indices.

Sources: Kubernetes documentation, "Indexed Job for Parallel Processing" (JOB_COMPLETION_INDEX), "Job with
Pod-to-Pod Communication" (host name `<job>-<index>`, subdomain = headless service), "StatefulSets: Stable
Network ID" (`<name>-<ordinal>.<service>`); JobSet documentation, "Concepts" (its labels) and the comments of
`spec.network` (`<jobset>-<replicatedJob>-<job-index>-<pod-index>.<subdomain>`, which is the JobSet's name if
not given). A JobSet's labels come into the environment by `fieldRef` under the names that are usual there.
"""

import re
from collections.abc import Mapping

from tfdist.cluster import Cluster
from tfdist.environments.variables import (
    RUN_ALONE,
    SUBDOMAIN,
    WORKERS,
    base_port,
    needed_number,
    whole_number,
    worker_cluster,
)
from tfdist.errors import ClusterError


def read(environ: Mapping[str, str]) -> Cluster | None:
    """The pods that train together, None outside of Kubernetes and in a pod of its own. Raises: ClusterError."""
    indexed = bool(environ.get("JOB_COMPLETION_INDEX"))
    if not indexed and not (environ.get("KUBERNETES_SERVICE_HOST") and environ.get(WORKERS)):
        return None
    why = f"A pod of an indexed Job is not told how many there are: set it to the Job's completions. {RUN_ALONE}"
    workers = needed_number(environ, WORKERS, why, lowest=1)
    if workers == 1:
        return Cluster.local()
    if environ.get("JOBSET_NAME"):
        names, rank = _job_set(environ, workers)
    elif indexed:
        names, rank = _job(environ, workers)
    else:
        names, rank = _stateful_set(environ, workers)
    subdomain = _subdomain(environ)
    return worker_cluster([f"{name}.{subdomain}" for name in names], [base_port(environ)] * workers, rank)


def _job(environ, workers):
    rank = whole_number(environ, "JOB_COMPLETION_INDEX")
    host, suffix = environ.get("HOSTNAME", ""), f"-{rank}"
    job = environ.get("JOB_NAME") or (host.removesuffix(suffix) if host.endswith(suffix) else "")
    if not job:
        raise ClusterError(
            f"HOSTNAME={host!r} does not end in the completion index {suffix}, so the Job's name is unknown. Set "
            "JOB_NAME to it, from the label batch.kubernetes.io/job-name."
        )
    return [f"{job}-{index}" for index in range(workers)], rank


def _job_set(environ, workers):
    why = "The pods of a JobSet are named by it: take it from the JobSet's label of that name by fieldRef."
    if not environ.get("REPLICATED_JOB_NAME"):
        raise ClusterError(f"JOBSET_NAME is set and REPLICATED_JOB_NAME is not. {why}")
    replicas = whole_number(environ, "REPLICATED_JOB_REPLICAS", lowest=1) or 1
    job = needed_number(environ, "JOB_INDEX", why) if replicas > 1 else 0
    pods, rest = divmod(workers, replicas)
    if rest:
        raise ClusterError(
            f"{WORKERS}={workers} does not divide by REPLICATED_JOB_REPLICAS={replicas}: every Job has as many pods. "
            f"Set {WORKERS} to replicas times completions."
        )
    prefix = f"{environ['JOBSET_NAME']}-{environ['REPLICATED_JOB_NAME']}"
    names = [f"{prefix}-{index}-{pod}" for index in range(replicas) for pod in range(pods)]
    return names, job * pods + needed_number(environ, "JOB_COMPLETION_INDEX", "Give the Jobs completionMode: Indexed.")


def _stateful_set(environ, workers):
    host = environ.get("HOSTNAME", "")
    name = re.fullmatch(r"(.+)-(\d+)", host)
    if not name:
        raise ClusterError(
            f"{WORKERS}={workers}, but HOSTNAME={host!r} is not that of a pod of an indexed Job, a JobSet or a "
            f"StatefulSet, which ends in its index. Use one of these. {RUN_ALONE}"
        )
    return [f"{name[1]}-{index}" for index in range(workers)], int(name[2])


def _subdomain(environ):
    subdomain = environ.get(SUBDOMAIN) or environ.get("JOBSET_NAME")
    if not subdomain:
        raise ClusterError(
            f"{SUBDOMAIN} is not set. Pods reach each other by name through a headless service: make one, name it as "
            f"the pods' subdomain (a StatefulSet's serviceName), and set {SUBDOMAIN} to it."
        )
    return subdomain
