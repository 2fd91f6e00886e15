"""Keeping the cluster's traffic out of HTTP proxies."""

import os
from collections.abc import MutableMapping

from tfdist.cluster import Cluster
from tfdist.cluster.address import split_address

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def exempt_from_proxies(cluster: Cluster, environ: MutableMapping[str, str] = os.environ) -> None:
    """Adds the cluster's hosts to `no_grpc_proxy` and `no_proxy`, where a proxy is set.

    gRPC sends connections to its peers through a proxy that one of these variables names, loopback too (gRPC
    documentation, "gRPC environment variables"); a proxy that does not answer makes TensorFlow wait in silence.
    It takes `no_grpc_proxy` before `no_proxy`. Call it before TensorFlow's server starts.
    """
    if not any(environ.get(name) for name in _PROXIES):
        return
    hosts = dict.fromkeys(split_address(address)[0] for address in cluster.worker_addresses if address)
    for name in ("no_grpc_proxy", "no_proxy"):
        listed = environ.get(name) or environ.get("no_proxy", "")
        environ[name] = ",".join([*filter(None, listed.split(",")), *hosts])
