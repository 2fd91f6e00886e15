"""Workers are real processes or real sockets on loopback; no TensorFlow."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tfdist.cluster import Cluster
from tfdist.environments import read_cluster
from tfdist.errors import ClusterError, PeerLostError
from tfdist.launch.local import free_ports
from tfdist.rendezvous import hello, meet, time_limit
from tfdist.testing import ClusterFailure, run_cluster

HTTP2_SETTINGS = b"\x00\x00\x18\x04\x00\x00\x00\x00\x00" + b"\x00" * 24


def pair(rank=0, host="127.0.0.1"):
    ports = free_ports(2)
    return Cluster({"worker": tuple(f"{host}:{port}" for port in ports)}, "worker", rank), ports


def meet_and_bind(delay):
    cluster = read_cluster()
    time.sleep(delay * cluster.rank)
    facts = meet(cluster, {"rank": cluster.rank}, timeout=30)
    with socket.socket() as plain:  # without SO_REUSEADDR: not even a trace of the meeting is left on the port
        plain.bind(("127.0.0.1", int(cluster.address.rpartition(":")[2])))
        plain.listen()
    return facts


def test_workers_learn_all_facts_and_leave_their_ports_free():
    expected = {f"worker {rank}": {"rank": rank} for rank in range(4)}
    assert run_cluster(meet_and_bind, workers=4, args=(0.3,)) == [expected] * 4


def test_proxies_in_the_environment_play_no_part():
    dead = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    assert len(run_cluster(meet_and_bind, args=(0,), env=dead)) == 2


def test_absent_peer_is_named_within_ten_seconds_and_at_the_end():
    cluster, ports = pair()
    reports = []
    with pytest.raises(PeerLostError) as error:
        meet(cluster, {}, timeout=5.5, report=reports.append)
    assert reports == [f"Waiting for 1 of 1 peers, 5 s of 5.5 s: worker 1 (127.0.0.1:{ports[1]}: connection refused)."]
    assert str(error.value).startswith("worker 1 did not appear within 5.5 s")
    assert error.value.exit_code == 69


def test_process_that_waits_ends_by_itself_with_code_69():
    cluster, _ = pair()
    code = (
        "import sys; from tfdist.environments import read_cluster; from tfdist.rendezvous import meet\n"
        "from tfdist.errors import TfdistError\n"
        "try: meet(read_cluster(), {}, timeout=0.5)\n"
        "except TfdistError as error: print(error, file=sys.stderr); sys.exit(error.exit_code)\n"
    )
    environ = {**os.environ, "TF_CONFIG": cluster.to_tf_config()}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 69
    assert "worker 1 did not appear" in ended.stderr


def test_unresolvable_name_is_said():
    own = f"{socket.gethostname()}:{free_ports(1)[0]}"
    cluster = Cluster({"worker": (own, "no-such-host.invalid:2222")}, "worker", 0)
    with pytest.raises(PeerLostError, match="the name no-such-host.invalid does not resolve"):
        meet(cluster, {}, timeout=1.5)


def test_socket_that_never_speaks_is_said():
    cluster, ports = pair()
    with socket.create_server(("127.0.0.1", ports[1])), pytest.raises(PeerLostError, match="but says nothing"):
        meet(cluster, {}, timeout=4)


def serve(port, data):
    """A server that greets everyone with `data`, until the process ends."""
    server = socket.create_server(("127.0.0.1", port))

    def loop():
        with server:
            while True:
                connection, _ = server.accept()
                connection.sendall(data)

    threading.Thread(target=loop, daemon=True).start()


def test_peer_whose_grpc_server_is_up_is_already_training():
    cluster, ports = pair()
    serve(ports[1], HTTP2_SETTINGS)
    with pytest.raises(PeerLostError, match="worker 1 .* is already training.*start the whole job again"):
        meet(cluster, {}, timeout=30)


def test_other_program_at_a_peers_address_is_refused():
    cluster, ports = pair()
    serve(ports[1], b"SSH-2.0-OpenSSH_9.2\r\n")
    with pytest.raises(ClusterError, match="At the address of worker 1.*another program answers: b'SSH-2.0"):
        meet(cluster, {}, timeout=30)


def test_busy_own_port_is_named():
    cluster, ports = pair()
    with (
        socket.create_server(("", ports[0])),
        pytest.raises(ClusterError, match=rf"Port {ports[0]} .* another process"),
    ):
        meet(cluster, {}, timeout=30)


def outcome_of_meeting(clusters):
    """What each of two workers, told these clusters, ends with: threads, for nothing here is of a process."""
    outcomes = [None] * len(clusters)

    def run(index):
        try:
            outcomes[index] = meet(clusters[index], {}, timeout=10)
        except (ClusterError, PeerLostError) as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(clusters))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_different_clusters_are_refused_on_both_sides():
    (here, ports), extra = pair(), free_ports(1)[0]
    told = tuple(f"127.0.0.1:{port}" for port in (*ports, extra))
    there = Cluster({"worker": told}, "worker", 1)
    outcomes = outcome_of_meeting([here, there])
    assert [type(outcome) for outcome in outcomes] == [ClusterError] * 2
    assert "worker 0 and worker 1 were told different clusters" in str(outcomes[0])


def test_process_with_another_ones_index_is_refused():
    cluster, ports = pair()
    tasks = {kind: list(addresses) for kind, addresses in cluster.tasks.items()}
    serve(ports[1], hello.pack({"task": "worker 0", "tasks": tasks, "facts": {}}))
    with pytest.raises(ClusterError, match="says it is worker 0 spoke at the address of worker 1"):
        meet(cluster, {}, timeout=30)


def stop_before_meeting():
    cluster = read_cluster()
    if cluster.rank == 1:
        with socket.create_server(("127.0.0.1", int(cluster.address.rpartition(":")[2]))):
            os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.5)
    with pytest.raises(PeerLostError) as error:
        meet(cluster, {}, timeout=4)
    peer = int(re.search(r"\d+$", cluster.tasks["worker"][1]).group())
    assert f"worker 1 (127.0.0.1:{peer}: accepts connections, but says nothing)" in str(error.value)
    print("named")
    os._exit(3)


def test_stopped_process_is_named():
    with pytest.raises(ClusterFailure) as failure:
        run_cluster(stop_before_meeting, timeout=30)
    assert "named" in failure.value.outputs[0]


def hold_the_global_lock(seconds):
    cluster = read_cluster()
    if cluster.rank == 0:
        with time_limit(cluster, seconds):
            ctypes.PyDLL(None).usleep(30_000_000)
    time.sleep(2 * seconds)


def test_limit_ends_a_process_that_holds_the_global_lock_and_names_the_silent_peer():
    with pytest.raises(ClusterFailure) as failure:
        run_cluster(hold_the_global_lock, args=(2.0,), timeout=30)
    assert failure.value.exit_codes[0] == 69
    assert "TensorFlow has not started within 2 s: worker 1 (127.0.0.1" in failure.value.outputs[0]


def test_limit_leaves_a_quick_block_alone():
    cluster, _ = pair()
    with time_limit(cluster, 0.5):
        pass
    time.sleep(2)
