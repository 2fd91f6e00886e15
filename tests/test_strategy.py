import json
import os
import signal
import sys
import time

import pytest

from tfdist.batching import Share
from tfdist.cluster import Cluster
from tfdist.environments import read_cluster
from tfdist.errors import ClusterError, TfdistError, UserError
from tfdist.rendezvous import meet
from tfdist.testing import ClusterFailure, run_cluster

DEAD_PROXY = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9") | {"no_proxy": None}
TWO = ("127.0.0.1:2222", "127.0.0.1:2223")


def made(kind, cpus=1, cluster=None):
    """What a strategy of this process says of itself, and what its replicas sum 1.0 to."""
    import tensorflow as tf

    from tfdist.strategy import is_chief, make_strategy, share_of

    if cpus > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * cpus)
    strategy = make_strategy(kind, cluster, startup_timeout=60)
    total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    total = strategy.experimental_local_results(total)[0]
    return share_of(strategy), is_chief(strategy), float(total)


def made_with_a_chief():
    told = read_cluster()
    place = ("chief", 0) if told.rank == 0 else ("worker", told.rank - 1)
    chief, *workers = told.worker_addresses
    return made("auto", cluster=Cluster({"worker": tuple(workers), "chief": (chief,)}, *place))


@pytest.mark.process
def test_chief_and_workers_reduce_together_despite_dead_proxies():
    results = run_cluster(made_with_a_chief, workers=3, env=DEAD_PROXY)
    assert results == [(Share(rank, 3, 1), rank == 0, 3.0) for rank in range(3)]


def local_kinds():
    """The strategies of a process alone with two logical CPUs, an evaluator's, and what is refused after them."""
    from tfdist.strategy import make_strategy

    found = [made("auto", cpus=2), made("single"), made("mirrored"), made("multiworker")]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": TWO}, "task": {"type": "evaluator", "index": 0}})
    found.append(made("multiworker"))
    with pytest.raises(UserError, match="TensorFlow has already run something.*Make the strategy first"):
        make_strategy("multiworker", Cluster({"worker": TWO}, "worker", 0))
    return found


@pytest.mark.process
def test_local_strategies_the_evaluators_and_one_that_comes_too_late():
    [found] = run_cluster(local_kinds, workers=1, env={"TF_CONFIG": None})
    two, one = (Share(0, 1, 2), True, 2.0), (Share(0, 1, 1), True, 1.0)
    assert found == [two, one, two, one, two]


def make_or_exit(startup_timeout):
    from tfdist.strategy import make_strategy

    try:
        make_strategy(startup_timeout=startup_timeout)
    except TfdistError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def with_an_absent_peer():
    if read_cluster().rank == 0:
        make_or_exit(startup_timeout=6)
    time.sleep(60)


@pytest.mark.process
def test_absent_peer_is_named_and_ends_the_process():
    with pytest.raises(ClusterFailure) as failure:
        run_cluster(with_an_absent_peer, timeout=120)
    assert failure.value.exit_codes[0] == 69
    assert "Waiting for 1 of 1 peers, 5 s of 6 s: worker 1 (127.0.0.1" in failure.value.outputs[0]
    assert "worker 1 did not appear within 6 s" in failure.value.outputs[0]


def with_a_peer_that_stops_after_the_meeting():
    from tfdist.strategy.multiworker import worker_facts

    cluster = read_cluster()
    if cluster.rank == 0:
        make_or_exit(startup_timeout=10)
    meet(cluster, worker_facts(), timeout=60)
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.process
def test_peer_that_stops_while_tensorflow_starts_is_named_and_ends_the_process():
    with pytest.raises(ClusterFailure) as failure:
        run_cluster(with_a_peer_that_stops_after_the_meeting, timeout=120)
    assert failure.value.exit_codes[0] == 69
    assert "TensorFlow has been starting for 5 s of 10 s: worker 1 (127.0.0.1" in failure.value.outputs[0]
    assert "TensorFlow has not started within 10 s: worker 1" in failure.value.outputs[0]


def test_unequal_workers_are_refused_by_name():
    from tfdist.strategy.multiworker import check_facts

    equal = {"devices": "2 GPU", "versions": "tensorflow 2.21.0"}
    check_facts({"chief": equal, "worker 0": equal})
    with pytest.raises(ClusterError, match="devices differ: chief: 2 GPU, worker 1: 1 GPU. Every worker needs as many"):
        check_facts({"chief": equal, "worker 0": equal, "worker 1": {**equal, "devices": "1 GPU"}})
    with pytest.raises(ClusterError, match="versions differ: chief: tensorflow 2.21.0, worker 0: None"):
        check_facts({"chief": equal, "worker 0": {"devices": "2 GPU"}})


def test_proxies_are_bypassed_for_the_clusters_hosts_alone():
    from tfdist.strategy.proxies import exempt_from_proxies

    cluster = Cluster({"worker": ("a:1", "[fe80::1]:2", "a:3")}, "worker", 0)
    environ = {"https_proxy": "http://proxy", "no_proxy": "intranet"}
    exempt_from_proxies(cluster, environ)
    assert environ["no_grpc_proxy"] == environ["no_proxy"] == "intranet,a,fe80::1"
    untouched = {}
    exempt_from_proxies(cluster, untouched)
    assert untouched == {}
