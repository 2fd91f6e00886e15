"""A look at a tf.data service before it is used: whether all of its servers are there."""

import concurrent.futures
import socket
import threading
import time
from collections.abc import Callable

import tensorflow as tf

from tfdist.errors import DataError, PeerLostError

_SERVICE = tf.data.experimental.service
_HINT = tf.data.experimental.SHARD_HINT
_PROBE_SECONDS = 0.5
_SHORTEST_PROBE = 5.0


def wait_for_servers(service: str, workers: int, timeout: float) -> None:
    """Returns once the dispatcher and all data workers are there; a batch would be missing from each round before.

    Raises:
        PeerLostError: some are not there after `timeout` seconds.
        DataError: the dispatcher expects another number of data workers, or none.
    """
    until = time.monotonic() + timeout
    _wait_for_dispatcher(service, until, timeout)
    while (there := _within(until, lambda: _data_workers(service, workers))) != workers:
        if there is None:
            raise PeerLostError(
                f"The data service at {service} does not say which data workers it has after {timeout:g} s: one of its "
                "servers hangs. Start them anew."
            )
        if time.monotonic() > until:
            raise PeerLostError(
                f"The data service at {service} has {there} of {workers} data workers after {timeout:g} s. Start the "
                "others, or wait longer for them."
            )
        time.sleep(_PROBE_SECONDS)


def _within(until: float, act: Callable[[], int]) -> int | None:
    """What `act` returns or raises, None if it is not done by then: TensorFlow waits without an end in it."""
    done: concurrent.futures.Future = concurrent.futures.Future()

    def run():
        try:
            done.set_result(act())
        except Exception as error:  # whatever it is, it is raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(timeout=max(_SHORTEST_PROBE, until - time.monotonic()))
    except concurrent.futures.TimeoutError:
        return None


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
