"""`Cluster`: the tasks of a job and which of them this process is, read once and never changed.

Without TensorFlow, so that a wrong cluster is refused before TensorFlow starts; what TensorFlow does
with most of these mistakes is to wait in silence.
"""

import dataclasses
import json
from collections.abc import Mapping

from tfdist.cluster import tf_config
from tfdist.cluster.checks import check_addresses, check_own_place, check_types
from tfdist.cluster.names import EVALUATOR, TRAINING_TYPES, task_name


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The training tasks of a job and this process's place in it.

    Attributes:
      tasks: task type ("chief", "worker", "ps") -> the "host:port" of each task, by index. None stands
        for a task whose address this process was not told (a sparse cluster). Evaluators are not in it:
        they are no part of the training cluster. Empty for a process on its own.
      task_type: "chief", "worker", "ps" or "evaluator".
      task_index: index of this task among those of its type.
      evaluators: addresses of the evaluators, where they are listed. Nobody dials them.

    Raises: ClusterError if an address is wrong or given twice, if loopback and other hosts are mixed,
    or if this task is not in the cluster.
    """

    tasks: Mapping[str, tuple[str | None, ...]] = dataclasses.field(default_factory=dict, hash=False)
    task_type: str = "worker"
    task_index: int = 0
    evaluators: tuple[str | None, ...] = ()

    def __post_init__(self):
        check_types([*self.tasks, self.task_type])
        tasks = {kind: tuple(self.tasks[kind]) for kind in TRAINING_TYPES if self.tasks.get(kind)}
        check_addresses(tasks)
        check_own_place({**tasks, EVALUATOR: self.evaluators}, self.task_type, self.task_index)
        object.__setattr__(self, "tasks", tasks)

    @classmethod
    def local(cls) -> "Cluster":
        """The cluster of one process on its own, so that nobody has to ask whether there is a cluster."""
        return cls()

    @classmethod
    def from_tf_config(cls, text: str) -> "Cluster":
        """Reads TF_CONFIG in each shape that schedulers write, see `tfdist.cluster.tf_config`. Raises: ClusterError."""
        return cls(**tf_config.read(text))

    def to_tf_config(self) -> str:
        """This cluster as the JSON text of a TF_CONFIG variable, for TensorFlow and for other processes."""
        listed = {**self.tasks, EVALUATOR: self.evaluators} if self.evaluators else self.tasks
        jobs = {kind: tf_config.job(addresses) for kind, addresses in listed.items()}
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
    def peers(self) -> dict[str, str]:
        """The same without this task, and without those whose address is unknown."""
        return {name: address for name, address in self.workers.items() if name != self.name and address}

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
