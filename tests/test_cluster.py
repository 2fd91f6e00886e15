import json
import pickle

import pytest

from tfdist.cluster import Cluster
from tfdist.cluster.address import split_address
from tfdist.errors import ClusterError

TWO = ["a:2222", "b:2222"]


def tf_config(cluster=None, kind=None, index=None, **other):
    task = {} if kind is None else {"type": kind, "index": index}
    return json.dumps({"cluster": cluster, "task": task, **other})


@pytest.mark.parametrize(
    ("config", "tasks", "name", "rank", "workers", "is_chief"),
    [
        (tf_config({"worker": TWO}, "worker", 1), {"worker": TWO}, "worker 1", 1, 2, False),
        (tf_config({"worker": TWO}, "worker", "0"), {"worker": TWO}, "worker 0", 0, 2, True),
        (tf_config({"worker": ["b:1"], "chief": ["a:1"]}, "worker", 0), None, "worker 0", 1, 2, False),
        (tf_config({"chief": ["a:1"], "worker": TWO}, "chief", 0), None, "chief", 0, 3, True),
        (tf_config({"master": ["m:1"], "worker": TWO}, "master", 0), None, "chief", 0, 3, True),
        (tf_config({"master": "m:1"}, "master", 0), {"chief": ["m:1"]}, "chief", 0, 1, True),
        (tf_config({"chief": ["a:1"], "ps": ["p:1", "q:1"]}, "ps", 1), None, "ps 1", None, 1, False),
        (tf_config({"worker": TWO, "ps": []}, "worker", 1, environment="cloud"), None, "worker 1", 1, 2, False),
        (tf_config({"worker": TWO, "evaluator": ["e:1"]}, "evaluator", 0), None, "evaluator 0", None, 2, False),
        (tf_config({"worker": TWO}, "evaluator", 0), {"worker": TWO}, "evaluator 0", None, 2, False),
        (tf_config({"worker": {"1": "b:1", "0": "a:1"}}, "worker", 1), None, "worker 1", 1, 2, False),
        (tf_config({"ps": ["p:1"], "worker": {"1": "b:1"}}, "worker", 1), None, "worker 1", 1, 2, False),
        (tf_config({"worker": ["a:1"]}), None, "worker 0", 0, 1, True),
        (tf_config({"worker": ["[::1]:1", "[::1]:2"]}, "worker", 0), None, "worker 0", 0, 2, True),
    ],
)
def test_shapes_of_tf_config(config, tasks, name, rank, workers, is_chief):
    cluster = Cluster.from_tf_config(config)
    assert (cluster.name, cluster.rank, cluster.num_workers, cluster.is_chief) == (name, rank, workers, is_chief)
    if tasks:
        assert {kind: list(addresses) for kind, addresses in cluster.tasks.items()} == tasks
    assert Cluster.from_tf_config(cluster.to_tf_config()) == cluster
    assert pickle.loads(pickle.dumps(cluster)) == cluster


@pytest.mark.parametrize(
    "text", ["", " \n", "{}", tf_config(), tf_config({}, "worker", 0), tf_config(None, "chief", 0, environment="cloud")]
)
def test_no_cluster_is_local(text):
    cluster = Cluster.from_tf_config(text)
    assert cluster == Cluster.local()
    assert (cluster.is_local, cluster.num_workers, cluster.rank, cluster.is_chief) == (True, 1, 0, True)
    assert cluster.address is None


def test_chief_ranks_before_workers():
    cluster = Cluster.from_tf_config(tf_config({"worker": TWO, "chief": ["c:1"]}, "worker", 1))
    assert cluster.worker_addresses == ("c:1", *TWO)
    assert list(cluster.workers) == ["chief", "worker 0", "worker 1"]
    assert cluster.address == "b:2222"


def test_sparse_cluster_leaves_other_workers_unknown():
    sparse = {"sparseCluster": {"ps": ["p:1", "q:1"], "worker": {"2": "c:1"}}, "task": {"type": "worker", "index": 2}}
    cluster = Cluster.from_tf_config(json.dumps(sparse))
    assert cluster.tasks["worker"] == (None, None, "c:1")
    assert json.loads(cluster.to_tf_config())["cluster"]["worker"] == {"2": "c:1"}


def test_sparse_parameter_server_is_told_of_itself_alone():
    sparse = {"sparseCluster": {"ps": ["q:1"], "worker": {}}, "task": {"type": "ps", "index": 1}}
    assert Cluster.from_tf_config(json.dumps(sparse)).tasks == {"ps": (None, "q:1")}


def test_evaluator_is_no_part_of_the_training_cluster():
    cluster = Cluster.from_tf_config(tf_config({"chief": ["a:1"], "evaluator": ["e:1"]}, "chief", 0))
    assert (cluster.tasks, cluster.evaluators) == ({"chief": ("a:1",)}, ("e:1",))
    with pytest.raises(ClusterError, match="evaluator 1.*lists 1 evaluator task"):
        Cluster.from_tf_config(tf_config({"chief": ["a:1"], "evaluator": ["e:1"]}, "evaluator", 1))


def test_master_is_logged(caplog):
    with caplog.at_level("INFO"):
        Cluster.from_tf_config(tf_config({"master": ["a:1"]}, "master", 0))
    assert "taken as the chief" in caplog.text


def test_address_splits_into_host_and_port():
    assert split_address("node-1.example.org:80") == ("node-1.example.org", 80)
    assert split_address("[fe80::1%eth0]:65535") == ("fe80::1%eth0", 65535)
