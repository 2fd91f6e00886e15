"""The meeting of all workers of a cluster."""

import contextlib
import functools
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping

from tfdist.cluster import Cluster
from tfdist.errors import ClusterError, PeerLostError, TfdistError
from tfdist.rendezvous import hello
from tfdist.rendezvous.sockets import ATTEMPT_SECONDS, dial, listen

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = (0.1, 2.0)
_ACCEPT_SECONDS = 0.1
_REPORT_SECONDS = 5.0


def meet(
    cluster: Cluster, facts: Mapping, timeout: float, report: Callable[[str], None] = _log.warning
) -> dict[str, dict]:
    """Waits until this worker and every other one have reached each other, and learns their facts.

    Every worker of the cluster calls it at its start, before TensorFlow's server takes the worker's port; parameter
    servers and evaluators do not. Afterwards the port is free again.

    Args:
      facts: what the others shall know of this worker; JSON values.
      timeout: seconds.
      report: is told every few seconds who is still missing, and how.
    Returns: the facts of every worker by task name ("chief", "worker 1") in rank order, this one's too.
    Raises: PeerLostError if a peer is missing at the end, or if it trains already; ClusterError if the own port
      is taken, if two workers were told different clusters, or if something else answers at a worker's address.
    """
    meeting = _Meeting(cluster, facts)
    with listen(str(cluster.address)) as server:
        meeting.start(server)
        try:
            meeting.wait(timeout, report)
        finally:
            meeting.stop()
    return {name: meeting.reached[name] for name in cluster.workers}


class _Meeting:
    """Who was reached and who was heard. Threads write it, under one condition; `wait` reads it."""

    def __init__(self, cluster, facts):
        self.name = cluster.name
        self.tasks = {kind: list(addresses) for kind, addresses in cluster.tasks.items()}
        self.peers = cluster.peers
        self.line = hello.pack({"task": self.name, "tasks": self.tasks, "facts": dict(facts)})
        self.reached = {self.name: dict(facts)}
        self.heard: set[str] = set()
        self.trouble = dict.fromkeys(self.peers, "no answer yet")
        self.failure: TfdistError | None = None
        self.ended = threading.Event()
        self.answers: list[tuple[threading.Thread, socket.socket]] = []
        self.changed = threading.Condition()

    def start(self, server):
        # Daemons, for a name look-up may take longer than anyone wants to wait for the process to end.
        self.listener = threading.Thread(target=self._listen, args=(server,), daemon=True)
        self.listener.start()
        for name in self.peers:
            threading.Thread(target=self._dial, args=(name,), daemon=True).start()

    def stop(self):
        self.ended.set()
        self.listener.join()
        # A peer that is ahead may have dialled with TensorFlow already: it dials again only if this call ends.
        for answer, connection in self.answers:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            answer.join()

    def wait(self, timeout, report):
        start = time.monotonic()
        next_report = _REPORT_SECONDS
        with self.changed:
            while self._missing() and not self.failure:
                waited = time.monotonic() - start
                if waited >= timeout:
                    raise PeerLostError(_lost_message(self._missing(), timeout))
                if waited >= next_report:
                    report(_waiting_message(self._missing(), len(self.peers), waited, timeout))
                    next_report += _REPORT_SECONDS
                self.changed.wait(min(next_report, timeout) - waited)
        if self.failure:
            raise self.failure

    def _missing(self):
        missing = {}
        for name, address in self.peers.items():
            if name not in self.reached:
                missing[name] = f"{address}: {self.trouble[name]}"
            elif name not in self.heard:
                missing[name] = f"{address}: answers, but does not reach {self.name} in turn"
        return missing

    def _listen(self, server):
        server.settimeout(_ACCEPT_SECONDS)
        while not self.ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                answer = threading.Thread(target=self._answer, args=(connection,), daemon=True)
                self.answers.append((answer, connection))
                answer.start()

    def _answer(self, connection):
        with connection, contextlib.suppress(OSError, hello.StrangerError), self._failures():
            connection.settimeout(ATTEMPT_SECONDS)
            fields = hello.answer(connection, self.line)
            name = self._checked(fields)
            if hello.is_acknowledged(connection):
                self._note(self.heard.add, name)

    def _dial(self, name):
        pause, longest = _PAUSE_SECONDS
        while not self.ended.is_set() and name not in self.reached:
            with self._failures():
                self._note(self.trouble.__setitem__, name, self._attempt(name))
            self.ended.wait(pause)
            pause = min(2 * pause, longest)

    def _attempt(self, name):
        try:
            return dial(self.peers[name], self.line, functools.partial(self._reach, name))
        except hello.StrangerError as stranger:
            if stranger.data:
                raise _stranger_error(name, self.peers[name], stranger) from None
            return "closes the connection"

    def _reach(self, name, fields):
        self._checked(fields, name)
        self._note(self.reached.__setitem__, name, fields.get("facts", {}))

    def _checked(self, fields, dialled=None):
        """The task that the peer says it is. Raises: ClusterError if it does not fit."""
        name, tasks = str(fields.get("task")), fields.get("tasks")
        if tasks != self.tasks:
            raise ClusterError(
                f"{self.name} and {name} were told different clusters: {self.tasks} here and {tasks} there. Give all "
                "workers the same cluster."
            )
        if name != (dialled or name) or name not in self.peers:
            asked = f"at the address of {dialled} ({self.peers[dialled]})" if dialled else f"to {self.name}"
            raise ClusterError(
                f"A process that says it is {name} spoke {asked}: two processes are told to be {name}, or an address "
                "belongs to another task. Give every process an index of its own."
            )
        return name

    def _note(self, change, *args):
        with self.changed:
            change(*args)
            self.changed.notify_all()

    @contextlib.contextmanager
    def _failures(self):
        try:
            yield
        except TfdistError as error:
            self._note(setattr, self, "failure", self.failure or error)


def _stranger_error(name, address, stranger):
    if stranger.is_grpc_server:
        return PeerLostError(
            f"{name} ({address}) is already training: its TensorFlow server answers. A single worker cannot rejoin a "
            "running job; end all workers and start the whole job again."
        )
    return ClusterError(
        f"At the address of {name}, {address}, another program answers: {stranger.data[:32]!r}. Every worker needs a "
        "port of its own; choose a free one for it in the cluster."
    )


def _waiting_message(missing, peers, waited, timeout):
    return f"Waiting for {len(missing)} of {peers} peers, {waited:.0f} s of {timeout:g} s: {_listed(missing)}."


def _lost_message(missing, timeout):
    return (
        f"{', '.join(missing)} did not appear within {timeout:g} s: {_listed(missing)}. All workers have to run at the "
        "same time and reach each other at these addresses. See what became of the missing ones and run the job again."
    )


def _listed(missing):
    return ", ".join(f"{name} ({how})" for name, how in missing.items())
