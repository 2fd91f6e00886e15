"""The two ends of a meeting's connections: a worker's own port, and one attempt to reach another's."""

import errno
import socket
from collections.abc import Callable

from tfdist.cluster.address import is_loopback, split_address
from tfdist.errors import ClusterError
from tfdist.rendezvous import hello

ATTEMPT_SECONDS = 3.0
_BACKLOG = 1024


def listen(address: str) -> socket.socket:
    """Listens on the port of `address`: on loopback if that is its host, else on all interfaces, as TensorFlow does.

    Raises: ClusterError if the port cannot be had.
    """
    host, port = split_address(address)
    local = is_loopback(host)
    try:
        if not local and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host if local else "", port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = "another process listens on it" if error.errno == errno.EADDRINUSE else error.strerror
        raise ClusterError(
            f"Port {port} of this worker ({address}) cannot be used: {reason}. Every worker needs a free port; end the "
            "process that has it (a worker of an earlier run?), or choose another port in the cluster."
        ) from None


def dial(address: str, line: bytes, accept: Callable[[dict], None]) -> str:
    """One attempt to exchange hellos with the worker at `address`; says in a few words what came of it.

    `accept` is called with what the other one said, before it is acknowledged; what it raises is passed on.
    Raises: StrangerError if something else than a meeting worker answers.
    """
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), timeout=ATTEMPT_SECONDS) as connection:
            if connection.getsockname() == connection.getpeername():
                return "connection refused"  # TCP met itself: nobody listens on this passing port
            return _greet(connection, line, accept)
    except socket.gaierror:
        return f"the name {host} does not resolve"
    except ConnectionRefusedError:
        return "connection refused"
    except OSError as error:
        return error.strerror or "no answer from the host"


def _greet(connection, line, accept):
    try:
        fields = hello.tell(connection, line)
    except TimeoutError:
        return "accepts connections, but says nothing"
    accept(fields)
    hello.acknowledge(connection)
    return "reached"
