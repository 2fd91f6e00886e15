"""The `host:port` of a task: how it is read, and the rules that one address has to keep.

TensorFlow starts its gRPC server on the port and dials its peers by the whole text. What it cannot
use it retries in silence, so everything that can be seen to be wrong is refused here.
"""

import ipaddress
import re

from tfdist.errors import ClusterError

MAX_PORT = 65535
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


def split_address(address: str) -> tuple[str, int]:
    """`"host:port"` -> `(host, port)`, an IPv6 host without its brackets.

    Raises: ClusterError for everything but a host name, an IPv4 address or a bracketed IPv6 address,
    then a port in [1, 65535].
    """
    host, colon, port = _text(address).rpartition(":")
    if not colon or (port.endswith("]") and host.startswith("[")):
        raise ClusterError(f"Address {address!r} has no port. An address is host:port; write it as '{address}:2222'.")
    return _host(host, address), _port(port, address)


def join_address(host: str, port: int) -> str:
    """`(host, port)` -> `"host:port"`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only processes of the same machine can reach `host`. Resolves no name."""
    if host.lower().rstrip(".") in ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"):
        return True
    ip = _ip(host)
    return ip is not None and ip.is_loopback


def same_server(address: str) -> tuple[str, int]:
    """A key that is equal for two addresses that are seen to be one server: TensorFlow listens on all interfaces."""
    host, port = split_address(address)
    ip = _ip(host)
    return "loopback" if is_loopback(host) else str(ip or host.lower().rstrip(".")), port


def _text(address) -> str:
    if not isinstance(address, str) or not address.strip():
        raise ClusterError(f"Address {address!r} is not text of the form host:port. Give each task one such address.")
    if "://" in address or "/" in address:
        raise ClusterError(
            f"Address {address!r} has a scheme or a path. An address is host:port alone; "
            f"write it as {address.split('://')[-1].split('/')[0]!r}."
        )
    if address != "".join(address.split()):
        raise ClusterError(f"Address {address!r} has white space in it. Write it as {''.join(address.split())!r}.")
    return address


def _host(host: str, address: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        if not isinstance(_ip(host[1:-1]), ipaddress.IPv6Address):
            raise ClusterError(f"Address {address!r}: {host} is not an IPv6 address. Brackets are for IPv6 alone.")
        host = host[1:-1]
    elif ":" in host:
        raise ClusterError(
            f"Address {address!r} has more than one colon: an IPv6 address stands in brackets. "
            f"Write it as [{host}]:{address.rpartition(':')[2]}, or as [{address}]:2222 if this is no port."
        )
    elif not _HOST_NAME.fullmatch(host):
        raise ClusterError(f"Address {address!r}: {host!r} is neither a host name nor an IP address. Correct the host.")
    if host == "0.0.0.0" or (_ip(host) is not None and _ip(host).is_unspecified):
        raise ClusterError(
            f"Address {address!r}: {host} means every interface of a machine, and no peer can dial it. "
            "Give the name or the address by which the other tasks reach this one."
        )
    return host


def _port(port: str, address: str) -> int:
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= MAX_PORT:
        raise ClusterError(
            f"Address {address!r}: port {port or 'missing'} is not a port that peers can dial. A port is a number "
            f"in [1, {MAX_PORT}], known to every task; choose a free one, such as 2222."
        )
    return int(port)


def _ip(host: str):
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
