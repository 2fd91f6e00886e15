"""A command in several workers on this machine, from start to exit code."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from tfdist.errors import FINISHED, PEER_MISSING, PREEMPTED, ConfigError
from tfdist.launch import processes
from tfdist.launch.local import local_clusters, worker_environ
from tfdist.launch.output import Output
from tfdist.launch.service import local_service, server_environ

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
# `timeout`, schedulers and terminals signal a process and its group, and so this one twice.
_SAME_SIGNAL_SECONDS = 1.0
_MOST_SIGNALS = 3
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
_LAST_OUTPUT_SECONDS = 2.0


def run_local(
    command: Sequence[str],
    workers: int,
    *,
    data_workers: int = 0,
    workdir: pathlib.Path | None = None,
    grace: float = 30.0,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Runs `command` in `workers` processes that form one cluster on loopback. Call it from the main thread.

    SIGINT, SIGTERM, SIGUSR1 and SIGHUP are passed on to the workers, once if they come twice within a second; the
    third kills.

    Args:
      data_workers: how many data workers of a tf.data service run beside them; they end with the workers, and the
        job fails with the first of them.
      workdir: its folder `logs` gets a file for each worker.
      grace: seconds from SIGTERM to SIGKILL for the others when one has failed; those that are to leave with code 75
        as one has done have as many, or a minute if that is more.
    Returns: 0 if all workers ended so, else the code of the one that failed first, see `exit_code`.
    Raises: ConfigError if there is no such command.
    """
    if not shutil.which(command[0]):
        raise ConfigError(f"The command {command[0]!r} is not found. Give a program that is on the PATH, after --.")
    clusters = local_clusters(workers)
    gpus = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))
    service = local_service(data_workers)
    names = [*(f"worker-{cluster.rank}" for cluster in clusters), *service.commands]
    outputs = [Output(name.replace("-", " "), name == names[0], _log_file(workdir, name)) for name in names]
    tasks = [(command, worker_environ(cluster, {**environ, **service.variables}, gpus)) for cluster in clusters]
    tasks += [(server, server_environ(environ)) for server in service.commands.values()]
    running: list[subprocess.Popen] = []
    try:
        with _signals_passed_on(running, workers) as received:
            for (line, variables), output in zip(tasks, outputs, strict=True):
                running.append(processes.start(processes.Task(line, variables, output.end)))
                output.start()
            failed = processes.wait_for_failure(
                running[:workers],
                servers=running[workers:],
                patience=lambda code: grace if received or code == PREEMPTED else 0.0,
            )
            code = FINISHED if failed is None else exit_code(running[failed].returncode, received)
            processes.end(running[:workers], grace, told=signal.SIGTERM in received)
    finally:
        processes.end(running, 0)
        for output in outputs:
            output.finish(_LAST_OUTPUT_SECONDS)
    if failed is not None:
        _say_who_failed(names[failed], running[failed].returncode, workdir)
    return code


def exit_code(returncode: int, received: Sequence[int] = ()) -> int:
    """The launcher's code for a worker's `returncode`, negative for a signal, after the signals in `received`.

    A worker that was killed is a peer that was lost, so the job can be run again: 69. One that crashed: 1. If the
    launcher itself was told to stop: 128 and the signal, as shells have it.
    """
    if returncode >= 0:
        return returncode
    if received:
        return 128 + received[0]
    return 1 if -returncode in _CRASHES else PEER_MISSING


@contextlib.contextmanager
def _signals_passed_on(running: list, workers: int) -> Iterator[list[int]]:
    received: list[int] = []
    last: dict[int, float] = {}

    def pass_on(signum, frame):
        del frame
        now = time.monotonic()
        if now - last.get(signum, float("-inf")) > _SAME_SIGNAL_SECONDS:
            last[signum] = now
            received.append(signum)
            processes.pass_on(running[:workers], signum if len(received) < _MOST_SIGNALS else signal.SIGKILL)

    before = {signum: signal.signal(signum, pass_on) for signum in _PASSED_ON}
    try:
        yield received
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _log_file(workdir, name):
    if workdir is None:
        return None
    folder = workdir / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--workdir={workdir}: {error.strerror}. Give a folder that can be written to.") from error
    return folder / f"{name}.log"


def _say_who_failed(name, returncode, workdir):
    how = f"exit code {returncode}" if returncode >= 0 else signal.Signals(-returncode).name
    where = f" Its output: {workdir}/logs/{name}.log" if workdir else ""
    sys.stderr.write(f"tfdist.launch: {name.replace('-', ' ')} ended with {how}; the others were ended.{where}\n")
