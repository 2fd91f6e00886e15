"""A look at a tf.data service before it is used: whether all of its servers are there."""

import socket
import time

import tensorflow as tf

from tfdist.errors import DataError, PeerLostError

_SERVICE = tf.data.experimental.service
_HINT = tf.data.experimental.SHARD_HINT
_PROBE_SECONDS = 0.5


def wait_for_servers(service: str, workers: int, timeout: float) -> None:
    """Returns once the dispatcher and all data workers are there; a batch would be missing from each round before.

    Raises:
        PeerLostError: some are not there after `timeout` seconds.
        DataError: the dispatcher expects another number of data workers, or none.
    """
    until = time.monotonic() + timeout
    _wait_for_dispatcher(service, until, timeout)
    while (there := _data_workers(service, workers)) < workers:
        if time.monotonic() > until:
            raise PeerLostError(
                f"The data service at {service} has {there} of {workers} data workers after {timeout:g} s. Start the "
                "others, or wait longer for them."
            )
        time.sleep(_PROBE_SECONDS)


def address_of(service) -> tuple[str, int]:
    """Host and port of `grpc://host:port`. Raises DataError for anything else."""
    text = service if isinstance(service, str) else ""
    host, _, port = text.removeprefix("grpc://").rpartition(":")
    if not text.startswith("grpc://") or not host or not port.isdigit():
        raise DataError(f"service={service!r}: the address of a dispatcher is grpc://host:port.")
    return host.strip("[]"), int(port)


def _wait_for_dispatcher(service: str, until: float, timeout: float) -> None:
    """TensorFlow would wait for an hour, and say nothing."""
    while True:
        try:
            socket.create_connection(address_of(service), timeout=max(1.0, until - time.monotonic())).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise PeerLostError(
                    f"The dispatcher of the data service at {service} does not answer after {timeout:g} s "
                    f"({error}). Start it, or correct the address."
                ) from error
        time.sleep(_PROBE_SECONDS)


def _data_workers(service: str, workers: int) -> int:
    """The data workers that are there. Raises DataError if the dispatcher does not expect just as many."""
    probe = tf.data.Dataset.range(tf.int64.max).shard(_HINT, _HINT).batch(2).take(1)
    probe = probe.apply(_SERVICE.distribute(_SERVICE.ShardingPolicy.HINT, service))
    try:
        found = [pair.numpy() for pair in probe]
    except tf.errors.OpError as error:
        raise DataError(
            f"The data service at {service} does not know its data workers: {error.message}. Start the dispatcher with "
            "`python -m tfdist.data_service`, or with their worker_addresses."
        ) from error
    expected = {int(second - first) for first, second in found}
    if expected - {workers}:
        raise DataError(
            f"The data service at {service} has {expected.pop()} data workers, not {workers}: a wrong number would "
            "mix up the batches. Correct the number."
        )
    return len(found)
