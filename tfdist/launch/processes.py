"""Processes that live and die together: start them, wait for the first that fails, end the rest."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from tfdist.errors import FINISHED, PEER_MISSING

_WRAPPER = str(pathlib.Path(__file__).with_name("bound.py"))
_POLL_SECONDS = 0.05
# How long others may take to end by themselves after a task said that a peer was lost: that peer's own exit code
# is the one to know, and it may come a moment later.
_ECHO_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Task:
    """A process to start: its name in messages, its command line, its whole environment, and where its output goes."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    output: object = None


def start(task: Task) -> subprocess.Popen:
    """Starts `task` in a process group of its own; it is killed when this process dies, however it dies."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", _WRAPPER, str(os.getpid()), *task.command],
        env=dict(task.environ),
        stdout=task.output,
        stderr=None if task.output is None else subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for_failure(processes: Sequence[subprocess.Popen], deadline: float = float("inf")) -> int | None:
    """Waits until all have ended well (None) or one has failed: its index, of the cause rather than of its echo.

    A process that ends because it lost a peer (code 69) was not the first to fail, so the others get a few seconds
    to end with a reason of their own. Raises: TimeoutError at `deadline`, on the monotonic clock.
    """
    echo_until = float("inf")
    while True:
        codes = [process.poll() for process in processes]
        failed = [index for index, code in enumerate(codes) if code not in (None, FINISHED)]
        causes = [index for index in failed if codes[index] != PEER_MISSING]
        now = time.monotonic()
        if causes or now > echo_until or (failed and None not in codes):
            return (causes or failed)[0]
        if None not in codes:
            return None
        if failed:
            echo_until = min(echo_until, now + _ECHO_SECONDS)
        if now > deadline:
            raise TimeoutError
        time.sleep(_POLL_SECONDS)


def end(processes: Sequence[subprocess.Popen], grace: float):
    """Ends every process and all that it started: SIGTERM, then SIGKILL after `grace` seconds. Returns when all are gone."""
    pass_on(processes, signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until and any(process.poll() is None for process in processes):
        time.sleep(_POLL_SECONDS)
    for process in processes:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def pass_on(processes: Sequence[subprocess.Popen], signum: int):
    """Sends a signal to each process that still runs and to all that it started."""
    for process in processes:
        if process.poll() is None:
            _signal_group(process, signum)


def _signal_group(process, signum):
    try:
        os.killpg(process.pid, signum)
    except ProcessLookupError:
        pass
