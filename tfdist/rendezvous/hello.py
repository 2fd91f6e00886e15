"""What two workers say to each other in a meeting: one line of JSON after a mark, each.

The dialler says its hello, hears the other's and acknowledges it, then closes first: the connection's last
traces then stay on the dialler's passing port, and the listener's port is free for TensorFlow's server.
"""

import json
import socket

MARK = b"tfdist-hello-1 "
ACKNOWLEDGED = b"+"
_MOST_BYTES = 16 << 20


class StrangerError(Exception):
    """Something answered that is no meeting worker. `data` are its first bytes; none if it closed at once."""

    def __init__(self, data: bytes):
        super().__init__(data)
        self.data = data

    @property
    def is_grpc_server(self) -> bool:
        """Whether the first bytes are an HTTP/2 SETTINGS frame, with which a gRPC server greets everyone."""
        return len(self.data) >= 4 and self.data[0] == 0 and self.data[3] == 4


def pack(fields: dict) -> bytes:
    """The line that says `fields`."""
    return MARK + json.dumps(fields).encode() + b"\n"


def receive(connection: socket.socket) -> dict:
    """The fields of the peer's line. Raises: StrangerError; TimeoutError or another OSError as the socket does."""
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(65536)
        data += part
        if not part or not data.startswith(MARK[: len(data)]) or len(data) > _MOST_BYTES:
            raise StrangerError(data[:64])
    try:
        fields = json.loads(data[len(MARK) :])
    except ValueError:
        raise StrangerError(data[:64]) from None
    if not isinstance(fields, dict):
        raise StrangerError(data[:64])
    return fields


def tell(connection: socket.socket, line: bytes) -> dict:
    """The dialler's side, but for the acknowledgement: says `line`, returns what the other says."""
    connection.sendall(line)
    return receive(connection)


def acknowledge(connection: socket.socket):
    """Ends the dialler's side."""
    connection.sendall(ACKNOWLEDGED)


def answer(connection: socket.socket, line: bytes) -> dict:
    """The listener's side, but for the acknowledgement: hears the other, answers `line`, returns what was heard."""
    fields = receive(connection)
    connection.sendall(line)
    return fields


def is_acknowledged(connection: socket.socket) -> bool:
    """Whether the dialler understood the answer. Returns when it has closed, so that it closes first."""
    acknowledged = connection.recv(1) == ACKNOWLEDGED
    while connection.recv(1):
        pass
    return acknowledged
