"""A step of a Slurm job, as `srun` starts it: one worker per task.

Sources: Slurm's "srun" manual, sections OUTPUT ENVIRONMENT VARIABLES and `--distribution`; which of them
are there was looked at under Slurm 22.05: a batch script has SLURM_PROCID, but no SLURM_STEP_ID.
"""

from collections.abc import Mapping

from tfdist.cluster import Cluster
from tfdist.environments.nodelist import expand_nodes, expand_numbers, expand_tasks
from tfdist.environments.variables import (
    PORT,
    RUN_ALONE,
    base_port,
    job_port,
    needed_number,
    whole_number,
    worker_cluster,
)
from tfdist.errors import ClusterError

_LEAVE = f"srun sets it; start the tasks with srun. {RUN_ALONE}"


def read(environ: Mapping[str, str]) -> Cluster | None:
    """The tasks of this job step, None outside of Slurm.

    A task's host is that of its node, in Slurm's order of nodes and under its distribution of tasks. Its port is
    the base plus its local rank: TFDIST_PORT, the ports that Slurm reserved, or a base that follows from the job.

    Raises: ClusterError if the process is not started by srun, or if the variables contradict each other.
    """
    if not (environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")):
        return None
    if not environ.get("SLURM_STEP_ID"):
        return _outside_of_a_step(environ)
    tasks = needed_number(environ, "SLURM_STEP_NUM_TASKS", _LEAVE, lowest=1)
    rank = needed_number(environ, "SLURM_PROCID", _LEAVE)
    if tasks == 1:
        return Cluster.local()
    nodes = expand_nodes(environ.get("SLURM_STEP_NODELIST", ""))
    counts = expand_tasks(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    _check_counts(tasks, nodes, counts)
    places = _places(counts, environ)
    _check_own_place(environ, rank, places, nodes)
    ports = _ports(environ, max(counts))
    hosts = nodes if len(nodes) > 1 else ["127.0.0.1"]
    return worker_cluster([hosts[node] for node, _ in places], [ports[local] for _, local in places], rank)


def _outside_of_a_step(environ):
    tasks = whole_number(environ, "SLURM_NTASKS") or 1
    if tasks == 1:
        return Cluster.local()
    raise ClusterError(
        f"SLURM_NTASKS={tasks}, but SLURM_STEP_ID is not set: Slurm has room for {tasks} tasks and srun started none, "
        f"so this process would wait for {tasks - 1} that never come. Put srun before the command. {RUN_ALONE}"
    )


def _check_counts(tasks, nodes, counts):
    if len(nodes) == len(counts) and sum(counts) == tasks:
        return
    raise ClusterError(
        f"Slurm says {tasks} tasks (SLURM_STEP_NUM_TASKS), but lists {sum(counts)} on {len(counts)} nodes "
        f"(SLURM_STEP_TASKS_PER_NODE), and {len(nodes)} nodes (SLURM_STEP_NODELIST). All three describe one step: "
        "leave them as srun sets them. The parts of a heterogeneous job are separate steps and cannot train together."
    )


def _places(counts, environ):
    """`(node, local rank)` of each rank."""
    method = environ.get("SLURM_DISTRIBUTION", "block").replace(",", ":").split(":")[0]
    chunks = {
        "block": lambda: max(counts),
        "cyclic": lambda: 1,
        "plane": lambda: needed_number(environ, "SLURM_DIST_PLANESIZE", _LEAVE, lowest=1),
    }
    if method not in chunks:
        raise ClusterError(
            f"SLURM_DISTRIBUTION={method!r}: which node a task runs on follows from block, cyclic and plane alone. "
            "Start the tasks with srun --distribution=block."
        )
    return _deal(counts, chunks[method]())


def _deal(counts, chunk):
    dealt = [0] * len(counts)
    places: list[tuple[int, int]] = []
    while len(places) < sum(counts):
        for node, count in enumerate(counts):
            upto = min(count, dealt[node] + chunk)
            places += ((node, local) for local in range(dealt[node], upto))
            dealt[node] = upto
    return places


def _check_own_place(environ, rank, places, nodes):
    if rank >= len(places):
        raise ClusterError(f"SLURM_PROCID={rank}, but the step has {len(places)} tasks. {_LEAVE}")
    node, local = places[rank]
    told = whole_number(environ, "SLURM_NODEID"), whole_number(environ, "SLURM_LOCALID")
    name = environ.get("SLURMD_NODENAME", nodes[node])
    if told[0] not in (None, node) or told[1] not in (None, local) or name != nodes[node]:
        raise ClusterError(
            f"Task {rank} should be task {local} of node {node}, {nodes[node]}, and Slurm says that it is task "
            f"{told[1]} of node {told[0]}, {name}. The tasks are not distributed as SLURM_DISTRIBUTION says; start "
            "them with srun --distribution=block."
        )


def _ports(environ, count):
    """`count` ports that all nodes share, the same in every task."""
    reserved = environ.get("SLURM_STEP_RESV_PORTS", "")
    if reserved and not environ.get(PORT):
        ports = [int(port) for port in expand_numbers(reserved)]
        if len(ports) >= count:
            return ports
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    base = base_port(environ, job_port(f"{job}.{environ['SLURM_STEP_ID']}", count))
    return list(range(base, base + count))
