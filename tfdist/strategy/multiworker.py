"""MultiWorkerMirroredStrategy with a start that ends: peers are met first, and TensorFlow's own start is bounded."""

import importlib.metadata
import signal
import threading
import time

import tensorflow as tf

from tfdist.cluster import Cluster
from tfdist.compat.context import context_is_initialized
from tfdist.errors import ClusterError, PeerLostError, UserError
from tfdist.rendezvous import meet, time_limit
from tfdist.strategy.devices import count_worker_devices
from tfdist.strategy.proxies import exempt_from_proxies

# What TensorFlow gets for its own start, once all peers are there, if the timeout is not shorter. It takes a second.
_ENOUGH_SECONDS = 60.0
_LOST = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError, tf.errors.CancelledError)


def make_multiworker(cluster: Cluster, startup_timeout: float) -> tf.distribute.MultiWorkerMirroredStrategy:
    """The strategy of this worker, after all workers have met and reduced a first number together.

    Raises: UserError if TensorFlow has begun to run in this process; ClusterError if the workers do not fit together;
      PeerLostError if one is missing. Ends the process with code 69 if TensorFlow's start takes too long: what
      is left of `startup_timeout`, but a minute (or `startup_timeout`, if that is less) in any case.
    """
    if cluster.num_workers == 1:
        return _make(Cluster.local())
    _check_context()
    start = time.monotonic()
    check_facts(meet(cluster, worker_facts(), startup_timeout))
    exempt_from_proxies(cluster)
    try:
        stop = signal.getsignal(signal.SIGTERM)
        left = startup_timeout - (time.monotonic() - start)
        with time_limit(cluster, max(left, min(startup_timeout, _ENOUGH_SECONDS))):
            strategy = _make(cluster)
            tf.function(lambda: strategy.run(_reduce_one), autograph=False)()
        _handle_sigterm(stop)
    except _LOST as error:
        raise PeerLostError(
            f"A peer went away while TensorFlow started: {error.message} See what became of it and run the job again."
        ) from error
    return strategy


def _handle_sigterm(handler) -> None:
    """Takes SIGTERM back from TensorFlow, whose server notes it and goes on, so that the process could not be ended."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def check_facts(facts: dict[str, dict]) -> None:
    """Refuses workers that cannot train together. `facts` are those of each worker by task name.

    Raises: ClusterError that names the workers that differ from the first one.
    """
    first, *others = facts
    for fact, rule in _RULES.items():
        odd = [name for name in others if facts[name].get(fact) != facts[first].get(fact)]
        if odd:
            values = ", ".join(f"{name}: {facts[name].get(fact)}" for name in odd)
            raise ClusterError(f"{fact} differ: {first}: {facts[first].get(fact)}, {values}. {rule}")


_RULES = {
    "devices": "Every worker needs as many devices, of one type. Show each as many, with CUDA_VISIBLE_DEVICES.",
    "versions": "Every worker needs the same versions. Install the same environment on all.",
}


def worker_facts() -> dict[str, str]:
    """What the other workers have to know of this one; `check_facts` compares it."""
    count, kind = count_worker_devices()
    versions = {name: importlib.metadata.version(name) for name in ("tensorflow", "keras")}
    return {"devices": f"{count} {kind}", "versions": ", ".join(f"{name} {v}" for name, v in versions.items())}


def _check_context():
    if context_is_initialized():
        raise UserError(
            "TensorFlow has already run something in this process (an operation, a tensor, a layer, a dataset, or "
            "list_logical_devices), and a process can join a cluster only before that. Make the strategy first, and "
            "everything else after it; to look at devices use tf.config.list_physical_devices."
        )


def _make(cluster):
    count, kind = count_worker_devices()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({task: list(addresses) for task, addresses in cluster.tasks.items()}),
        task_type=cluster.task_type,
        task_id=cluster.task_index,
        num_accelerators={kind: count},
        rpc_layer="grpc",
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)


def _reduce_one():
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))
