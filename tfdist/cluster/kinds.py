"""Which strategy can serve a cluster: the rules alone, so that a mistake shows before TensorFlow is imported."""

import difflib

from tfdist.cluster.cluster import Cluster
from tfdist.errors import ClusterError, ConfigError, UnsupportedError

KINDS = ("auto", "single", "mirrored", "multiworker", "ps")


def check_kind(kind: str, cluster: Cluster):
    """Whether the strategy `kind` can serve `cluster`.

    An evaluator is served by every kind: it gets a local strategy.

    Raises: ConfigError for an unknown kind; ClusterError for a cluster that the kind cannot serve; UnsupportedError
      for parameter servers.
    """
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(f"strategy {kind!r} is unknown. It is one of {', '.join(KINDS)}{hint}")
    if cluster.is_evaluator:
        return
    if kind == "ps" or (kind == "auto" and cluster.has_ps):
        _check_ps(cluster)
    elif cluster.has_ps:
        raise ClusterError(
            f"strategy {kind!r} with {len(cluster.tasks['ps'])} ps tasks in the cluster: only strategy 'ps' has use "
            "for them, and in any other the workers would wait for them for ever. Take them out of the cluster."
        )
    elif kind in ("single", "mirrored") and cluster.num_workers > 1:
        raise ClusterError(
            f"strategy {kind!r} serves one process, and the cluster has {cluster.num_workers} workers: each would "
            "train a model of its own and write over the others' files. Take 'multiworker' or 'auto', or set "
            "TF_CONFIG='{}'."
        )
    elif None in cluster.worker_addresses:
        raise ClusterError(
            f"The cluster gives no address for {_nameless(cluster)}: in a sparse cluster (TFJob's enableDynamicWorker) "
            f"workers do not know each other, and strategy {kind!r} needs them all. List every worker."
        )


def choose_kind(cluster: Cluster, devices: int) -> tuple[str, str]:
    """The kind that "auto" stands for, and why. `devices` is how many devices this process would train on."""
    if cluster.has_ps and not cluster.is_evaluator:
        return "ps", "the cluster has parameter servers"
    if cluster.num_workers > 1 and not cluster.is_evaluator:
        return "multiworker", f"the cluster has {cluster.num_workers} workers"
    alone = "an evaluator trains with nobody" if cluster.is_evaluator else "the cluster has one worker"
    if devices > 1:
        return "mirrored", f"{alone}, and it has {devices} devices"
    return "single", f"{alone}, and it has one device"


def _check_ps(cluster):
    if not cluster.has_ps:
        raise ClusterError(
            "strategy 'ps' needs ps tasks, and the cluster has none. Add them to the cluster, or take 'multiworker'."
        )
    raise UnsupportedError(
        f"strategy 'ps' for {len(cluster.tasks['ps'])} ps tasks: training with parameter servers is not there yet. "
        "Take the ps tasks out of the cluster and use strategy 'multiworker'."
    )


def _nameless(cluster):
    return ", ".join(name for name, address in cluster.workers.items() if address is None)
