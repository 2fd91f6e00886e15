"""Processes that live and die together: start them, wait for the first that fails, end the rest."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from tfdist.errors import FINISHED, PEER_MISSING, PREEMPTED

_WRAPPER = str(pathlib.Path(__file__).with_name("bound.py"))
_POLL_SECONDS = 0.05
# Codes with which all tasks end sooner or later, and the seconds that the others get to do so by themselves: who lost
# a peer may be quicker than the peer, whose own code is the one to know; and a checkpoint may have to be finished.
_OTHERS_FOLLOW = {PEER_MISSING: 5.0, PREEMPTED: 60.0}


@dataclasses.dataclass(frozen=True)
class Task:
    """A process to start: its command line, its whole environment, and where its output goes (None: to our own)."""

    command: Sequence[str]
    environ: Mapping[str, str]
    output: int | IO[bytes] | None = None


def start(task: Task) -> subprocess.Popen:
    """Starts `task` in a process group of its own; it is killed when this process dies, however it dies."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", _WRAPPER, str(os.getpid()), *task.command],
        env=dict(task.environ),
        stdin=subprocess.DEVNULL,
        stdout=task.output,
        stderr=None if task.output is None else subprocess.STDOUT,
        start_new_session=True,
    )


def wait_for_failure(
    processes: Sequence[subprocess.Popen],
    deadline: float = float("inf"),
    servers: Sequence[subprocess.Popen] = (),
    patience: Callable[[int], float] = lambda code: 0.0,
) -> int | None:
    """Waits until all have ended well (None) or one has failed: its index, of the cause rather than of who followed.

    `servers` run on by themselves: one that has ended has failed, its index counted after those of the processes.
    `patience(code)` is how many seconds, at least, the others have after one that left with 69 or 75.
    Raises: TimeoutError at `deadline`, on the monotonic clock.
    """
    follow_until: dict[int, float] = {}
    while True:
        codes = [process.poll() for process in processes]
        failed = [index for index, code in enumerate(codes) if code not in (None, FINISHED)]
        causes = [index for index in failed if codes[index] not in _OTHERS_FOLLOW]
        gone = [index for index, server in enumerate(servers, len(processes)) if server.poll() is not None]
        now = time.monotonic()
        for index in failed:
            code = codes[index] or FINISHED
            follow_until.setdefault(index, now + max(_OTHERS_FOLLOW.get(code, 0.0), patience(code)))
        if gone and None in codes:
            return gone[0]
        if causes or (failed and (None not in codes or now > max(follow_until.values()))):
            # Who was preempted knows more than a peer that lost it.
            return (causes or sorted(failed, key=lambda index: codes[index] != PREEMPTED))[0]
        if None not in codes:
            return None
        if now > deadline:
            raise TimeoutError
        time.sleep(_POLL_SECONDS)


def end(processes: Sequence[subprocess.Popen], grace: float, told: bool = False) -> None:
    """Ends each process and what it started: SIGTERM, SIGKILL after `grace` seconds. Returns when all are gone.

    Those that were `told` already get no SIGTERM: a second one would end a save.
    """
    if not told:
        pass_on(processes, signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until and any(process.poll() is None for process in processes):
        time.sleep(_POLL_SECONDS)
    for process in processes:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def pass_on(processes: Sequence[subprocess.Popen], signum: int) -> None:
    """Sends a signal to each process that still runs and to all that it started."""
    for process in processes:
        if process.returncode is None:
            _signal_group(process, signum)


def _signal_group(process, signum):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)
