"""The rules of a cluster as a whole. Each raises ClusterError where TensorFlow would wait in silence."""

import collections

from tfdist.cluster.address import is_loopback, same_server, split_address
from tfdist.cluster.names import EVALUATOR, TRAINING_TYPES, task_name
from tfdist.errors import ClusterError


def check_types(types):
    """Only types that TensorFlow's strategies know."""
    for kind in types:
        if kind not in (*TRAINING_TYPES, EVALUATOR):
            raise ClusterError(
                f"Task type {kind!r} is unknown. A cluster is made of {', '.join(TRAINING_TYPES)} and {EVALUATOR} "
                "tasks; rename it."
            )


def check_addresses(tasks):
    """No two tasks on one address, one chief, and loopback for all or for none."""
    if len(tasks.get("chief", ())) > 1:
        raise ClusterError(
            f"The cluster has {len(tasks['chief'])} chiefs; there is at most one. Make the others workers."
        )
    named = {task_name(k, i): a for k, addresses in tasks.items() for i, a in enumerate(addresses) if a is not None}
    servers = collections.defaultdict(list)
    for name, address in named.items():
        servers[same_server(address)].append(name)
    for names in servers.values():
        if len(names) > 1:
            raise ClusterError(
                f"{' and '.join(names)} have one address, {named[names[1]]}. Every task listens on an address of its "
                "own; give tasks on one host different ports."
            )
    _check_loopback(named)


def _check_loopback(named):
    local: list[str] = []
    other: list[str] = []
    for address in named.values():
        (local if is_loopback(split_address(address)[0]) else other).append(address)
    if local and other:
        raise ClusterError(
            f"The cluster mixes {local[0]}, which only its own machine can reach, with {other[0]}. Use loopback for "
            "all tasks or for none: write the host name that every task can reach."
        )


def check_own_place(tasks, kind, index):
    """This task is one of the cluster; an evaluator, and a process on its own, need not be listed."""
    if not isinstance(index, int) or index < 0:
        raise ClusterError(f"Task index {index!r} of a {kind}: an index is a number from 0 up. Correct task.index.")
    addresses = tasks.get(kind, ())
    alone = not any(tasks.values()) and (kind, index) == ("worker", 0)
    if alone or (kind == EVALUATOR and not addresses):
        return
    if index >= len(addresses):
        raise ClusterError(
            f"This process is {task_name(kind, index)}, and the cluster lists {len(addresses)} {kind} "
            f"task{'s' if len(addresses) != 1 else ''}: an index is below that number. List the task in the cluster, "
            "or correct the type and index of this process."
        )
    if addresses[index] is None:
        raise ClusterError(f"The cluster gives no address for this process, {task_name(kind, index)}. Add it.")
