"""Running a function in every worker of a real cluster of processes on loopback. For tests.

def step(seed): ...                       # a function of a module
results = run_cluster(step, workers=2, args=(7,))
"""

import importlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from tfdist.launch import processes
from tfdist.launch.local import local_clusters

_TAIL_LINES = 60
_GRACE_SECONDS = 2.0


class ClusterFailure(AssertionError):
    """A task of `run_cluster` failed or the time ran out. The message has every task's state and last output.

    Attributes:
      outputs: what each task wrote to standard output and standard error, by rank.
      exit_codes: each task's exit code, by rank, as it was before the rest were ended; None if it still ran,
        negative the number of the signal that killed it.
    """

    def __init__(self, message: str, outputs: Sequence[str] = (), exit_codes: Sequence[int | None] = ()):
        super().__init__(message)
        self.outputs = outputs
        self.exit_codes = exit_codes


def run_cluster(
    fn: Callable,
    workers: int = 2,
    args: Sequence = (),
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
) -> list:
    """Calls `fn(*args)` in `workers` new processes that form one cluster; returns what each returned, by rank.

    Args:
      fn: a function at the top level of an importable module. In each process TF_CONFIG is set before that
        module is imported.
      args: picklable values.
      timeout: seconds after which everything is killed.
      env: variables to set beside the parent's; a value of None removes one.
    Raises: ClusterFailure as soon as one task fails, or at the timeout. No process is left behind.
    """
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix="run_cluster_") as folder:
        tasks = [_Task(pathlib.Path(folder, str(c.rank)), c, fn, args, env) for c in local_clusters(workers)]
        running: list[subprocess.Popen] = []
        try:
            running += (task.start() for task in tasks)
            failed = processes.wait_for_failure(running, deadline)
            problem = None if failed is None else f"{tasks[failed].name} failed"
        except TimeoutError:
            problem = f"not finished after {timeout:g} s"
        finally:
            codes = [process.poll() for process in running]
            processes.end(running, _GRACE_SECONDS if None in codes else 0)
        if problem:
            raise _failure(problem, tasks, codes)
        return [task.result() for task in tasks]


class _Task:
    """One process of a cluster, and the folder through which its call goes in and its result comes out."""

    def __init__(self, folder, cluster, fn, args, env):
        folder.mkdir()
        self.folder, self.name = folder, cluster.name
        self.call_with(fn, args)
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONFAULTHANDLER": "1"}
        self.environ |= {"TF_CONFIG": cluster.to_tf_config()} | dict(env or {})
        self.environ = {name: value for name, value in self.environ.items() if value is not None}

    def call_with(self, fn, args):
        if fn.__module__ == "__main__" or "<locals>" in fn.__qualname__:
            raise ValueError(
                f"run_cluster cannot call {fn.__module__}.{fn.__qualname__} in a new process: that process imports "
                "the function by name. Move it to the top level of a module."
            )
        self.folder.joinpath("call").write_bytes(pickle.dumps((fn.__module__, fn.__qualname__, pickle.dumps(args))))

    def start(self):
        with self.folder.joinpath("output").open("wb") as output:
            command = [sys.executable, "-m", "tfdist.testing", str(self.folder)]
            return processes.start(processes.Task(command, self.environ, output))

    @property
    def output(self):
        return self.folder.joinpath("output").read_text(errors="replace")

    def result(self):
        return pickle.loads(self.folder.joinpath("result").read_bytes())


def _failure(problem, tasks, codes):
    outputs = [task.output for task in tasks]
    parts = [f"run_cluster: {problem}."]
    for task, code, output in zip(tasks, codes, outputs, strict=True):
        tail = "\n".join(output.splitlines()[-_TAIL_LINES:])
        parts.append(f"--- {task.name}: {_state(code)}\n{tail}")
    return ClusterFailure("\n".join(parts), outputs, codes)


def _state(code):
    if code is None:
        return "was still running"
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _run_in_task(folder):
    module, name, args = pickle.loads(pathlib.Path(folder, "call").read_bytes())
    result = getattr(importlib.import_module(module), name)(*pickle.loads(args))
    partial = pathlib.Path(folder, "partial")
    partial.write_bytes(pickle.dumps(result))
    partial.rename(pathlib.Path(folder, "result"))


if __name__ == "__main__":
    _run_in_task(sys.argv[1])
