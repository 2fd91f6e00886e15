"""The shapes of TF_CONFIG: JSON text -> the fields of a `Cluster`.

The format is TensorFlow's ("tf.distribute.cluster_resolver.TFConfigClusterResolver"). What is
understood beyond it, and who writes it:

* `{}`, no `cluster` or an empty one, with or without a `task`: a process on its own (AI Platform with
  one machine);
* indices as text, an `environment`, `job` or `rpc_layer` key beside `cluster` and `task` (AI Platform,
  Vertex AI);
* `master` for the chief, from before TensorFlow 1.13;
* a job as a mapping index -> address, and `sparseCluster` for `cluster` (TFJob with dynamic workers):
  a worker is told of itself and of the parameter servers, a parameter server of itself alone, as a list of
  one whatever its index; the tasks left out have no address;
* an `evaluator` listed in the cluster or left out of it.
"""

import json
import logging

from tfdist.errors import ClusterError

_log = logging.getLogger(__name__)
# No job is that large; a wrong index in a sparse cluster must not fill the memory.
_MOST_TASKS = 100_000


def read(text: str) -> dict:
    """TF_CONFIG text -> the fields of a `Cluster`. Raises: ClusterError."""
    config = _parse(text)
    jobs = config.get("cluster") or config.get("sparseCluster") or {}
    _check_is(jobs, dict, "cluster", '{"worker": ["host:port", ...]}')
    tasks = {kind: _addresses(kind, listed) for kind, listed in jobs.items()}
    tasks = _rename_master({kind: addresses for kind, addresses in tasks.items() if addresses})
    kind, index = _own_task(config.get("task") or {}, tasks)
    if "sparseCluster" in config and kind == "ps" and len(tasks.get("ps", ())) == 1:
        tasks["ps"] = (None,) * index + tasks["ps"]
    evaluators = tasks.pop("evaluator", ())
    return {"tasks": tasks, "task_type": kind, "task_index": index, "evaluators": evaluators}


def job(addresses) -> list | dict:
    """The addresses of one type as TF_CONFIG has them: a list, or a mapping where some are unknown."""
    if None not in addresses:
        return list(addresses)
    return {str(index): address for index, address in enumerate(addresses) if address is not None}


def _parse(text):
    if not text.strip():
        return {}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ClusterError(
            f"TF_CONFIG is not JSON: {error.msg} at character {error.pos}, {text[max(0, error.pos - 20) :][:40]!r}. "
            "Quote names with double quotes and end lists without a comma."
        ) from None
    _check_is(config, dict, "TF_CONFIG", '{"cluster": {...}, "task": {...}}')
    return config


def _addresses(kind, listed):
    if listed is None:
        return ()
    if isinstance(listed, dict):
        by_index = {_index(index, f"an index of cluster.{kind}"): address for index, address in listed.items()}
        return tuple(by_index.get(index) for index in range(max(by_index, default=-1) + 1))
    if isinstance(listed, str):
        listed = [listed]
    _check_is(listed, list, f"cluster.{kind}", '["host:port", ...]')
    if None in listed:
        raise ClusterError(f"TF_CONFIG: cluster.{kind} has null for an address. Each task is a text host:port.")
    return tuple(listed)


def _rename_master(tasks):
    if "master" not in tasks:
        return tasks
    if "chief" in tasks:
        raise ClusterError("TF_CONFIG has both chief and master, two names of one task. Keep chief.")
    _log.info("TF_CONFIG names a master; it is taken as the chief.")
    return {"chief" if kind == "master" else kind: addresses for kind, addresses in tasks.items()}


def _own_task(task, tasks):
    _check_is(task, dict, "task", '{"type": "worker", "index": 0}')
    kind = task.get("type") or _only_type(tasks)
    kind = "chief" if kind == "master" else kind
    _check_is(kind, str, "task.type", '"worker"')
    if not tasks and kind == "chief":
        kind = "worker"
    if task.get("index") is None and len(tasks.get(kind, ())) > 1:
        raise ClusterError(
            f"TF_CONFIG: task.index is missing, and the cluster has {len(tasks[kind])} {kind} tasks. "
            "Every process states its own index."
        )
    return kind, _index(task.get("index") or 0, "task.index")


def _only_type(tasks):
    if sum(map(len, tasks.values())) > 1:
        raise ClusterError(
            f"TF_CONFIG: task.type is missing, and the cluster has {', '.join(tasks)} tasks. Every process states "
            'which task it is: "task": {"type": "worker", "index": 0}.'
        )
    return next(iter(tasks), "worker")


def _index(value, where):
    number = int(value) if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _MOST_TASKS:
        raise ClusterError(f"TF_CONFIG: {where} is {value!r}. An index is a whole number in [0, {_MOST_TASKS}).")
    return number


def _check_is(value, kind, where, example):
    if not isinstance(value, kind):
        raise ClusterError(f"TF_CONFIG: {where} is {json.dumps(value)[:60]}. It has the form {example}.")
