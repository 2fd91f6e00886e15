"""`Cluster`: the tasks of a job and which of them this process is, read once and never changed.

Without TensorFlow, so that a wrong cluster is refused before TensorFlow starts; what TensorFlow does
with most of these mistakes is to wait in silence.
"""

import collections
import dataclasses
import json
from collections.abc import Mapping

from tfdist.cluster import tf_config
from tfdist.cluster.address import is_loopback, same_server, split_address
from tfdist.errors import ClusterError

TRAINING_TYPES = ("chief", "worker", "ps")
EVALUATOR = "evaluator"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The training tasks of a job and this process's place in it.

    Attributes:
      tasks: task type ("chief", "worker", "ps") -> the "host:port" of each task, by index. None stands
        for a task whose address this process was not told (a sparse cluster). Evaluators are not in it:
        they are no part of the training cluster. Empty for a process on its own.
      task_type: "chief", "worker", "ps" or "evaluator".
      task_index: index of this task among those of its type.

    Raises: ClusterError if an address is wrong or given twice, if loopback and other hosts are mixed,
    or if this task is not in the cluster.
    """

    tasks: Mapping[str, tuple[str | None, ...]] = dataclasses.field(default_factory=dict, hash=False)
    task_type: str = "worker"
    task_index: int = 0

    def __post_init__(self):
        tasks = {kind: tuple(self.tasks[kind]) for kind in TRAINING_TYPES if self.tasks.get(kind)}
        _check_types([*self.tasks, self.task_type])
        _check_addresses(tasks)
        _check_own_place(tasks, self.task_type, self.task_index)
        object.__setattr__(self, "tasks", tasks)

    @classmethod
    def local(cls) -> "Cluster":
        """The cluster of one process on its own, so that nobody has to ask whether there is a cluster."""
        return cls()

    @classmethod
    def from_tf_config(cls, text: str) -> "Cluster":
        """Reads TF_CONFIG in every shape that schedulers write, see `tfdist.cluster.tf_config`. Raises: ClusterError."""
        return cls(*tf_config.read(text))

    def to_tf_config(self) -> str:
        """This cluster as the JSON text of a TF_CONFIG variable, for TensorFlow and for other processes."""
        jobs = {kind: tf_config.job(addresses) for kind, addresses in self.tasks.items()}
        return json.dumps({"cluster": jobs, "task": {"type": self.task_type, "index": self.task_index}})

    @property
    def is_local(self) -> bool:
        """Whether this process has no peers at all to talk to."""
        return not self.tasks

    @property
    def is_evaluator(self) -> bool:
        return self.task_type == EVALUATOR

    @property
    def has_ps(self) -> bool:
        return "ps" in self.tasks

    @property
    def name(self) -> str:
        """This task as people read it: "chief", "worker 1"."""
        return task_name(self.task_type, self.task_index)

    @property
    def workers(self) -> dict[str, str | None]:
        """Name -> address of every task that trains, in rank order: the chief, then the workers."""
        return {
            task_name(kind, index): address
            for kind in ("chief", "worker")
            for index, address in enumerate(self.tasks.get(kind, ()))
        }

    @property
    def worker_addresses(self) -> tuple[str | None, ...]:
        """Addresses of the tasks that train, in rank order."""
        return tuple(self.workers.values())

    @property
    def num_workers(self) -> int:
        """How many tasks train, the chief among them; 1 for a process on its own."""
        return max(1, len(self.workers))

    @property
    def rank(self) -> int | None:
        """Place of this task among those that train, the chief first; None for a `ps` and an evaluator."""
        if self.task_type not in ("chief", "worker"):
            return None
        return list(self.workers).index(self.name) if self.workers else 0

    @property
    def is_chief(self) -> bool:
        """Whether this task is the one that writes: the chief, or the first worker where there is none."""
        return self.rank == 0

    @property
    def address(self) -> str | None:
        """Own "host:port"; None for a process on its own and for an evaluator."""
        return None if self.is_local or self.is_evaluator else self.tasks[self.task_type][self.task_index]


def task_name(task_type: str, task_index: int) -> str:
    """The name of a task in messages; there is one chief, so it has no number."""
    return "chief" if task_type == "chief" else f"{task_type} {task_index}"


def _check_types(types):
    for kind in types:
        if kind not in (*TRAINING_TYPES, EVALUATOR):
            raise ClusterError(
                f"Task type {kind!r} is unknown. A cluster is made of {', '.join(TRAINING_TYPES)} and {EVALUATOR} "
                "tasks; rename it."
            )


def _check_addresses(tasks):
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
    if len(tasks.get("chief", ())) > 1:
        raise ClusterError(
            f"The cluster has {len(tasks['chief'])} chiefs; there is at most one. Make the others workers."
        )


def _check_loopback(named):
    local = [address for address in named.values() if is_loopback(split_address(address)[0])]
    other = [address for address in named.values() if address not in local]
    if local and other:
        raise ClusterError(
            f"The cluster mixes {local[0]}, which only its own machine can reach, with {other[0]}. Use loopback for "
            "all tasks or for none: write the host name that every task can reach."
        )


def _check_own_place(tasks, kind, index):
    if not isinstance(index, int) or index < 0:
        raise ClusterError(f"Task index {index!r} of a {kind}: an index is a number from 0 up. Correct task.index.")
    count = len(tasks.get(kind, ()))
    if kind == EVALUATOR or (not tasks and kind == "worker" and index == 0):
        return
    if index >= count:
        raise ClusterError(
            f"This process is {task_name(kind, index)}, and the cluster lists {count} {kind} "
            f"task{'s' if count != 1 else ''}: an index is below that number. List the task in the cluster, or "
            "correct the type and index of this process."
        )
    if tasks[kind][index] is None:
        raise ClusterError(f"The cluster gives no address for this process, {task_name(kind, index)}. Add it.")
