import json
import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.cluster import Cluster
from tfdist.cluster.kinds import check_kind, choose_kind
from tfdist.environments import read_cluster, read_data_service, read_full_workers
from tfdist.environments.nodelist import expand_nodes, expand_tasks
from tfdist.errors import ClusterError, UserError


def slurm(**changes):
    """Variables as a step of Slurm 22.05 has them: `srun -n5 -N3`, looked at from task 3."""
    names = {
        "SLURM_JOB_ID": "17",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "5",
        "SLURM_STEP_NUM_TASKS": "5",
        "SLURM_STEP_NODELIST": "gpu01,n[9-10]",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
        "SLURM_STEP_RESV_PORTS": "23001-23003",
        "SLURM_PROCID": "3",
        "SLURM_NODEID": "1",
        "SLURM_LOCALID": "1",
        "SLURMD_NODENAME": "n9",
    }
    return _changed(names, {f"SLURM_{name}": value for name, value in changes.items()})


def mpi(**changes):
    """Variables as mpirun of Open MPI sets them: rank 3 of 4, two ranks a host."""
    names = {"SIZE": "4", "RANK": "3", "LOCAL_SIZE": "2", "LOCAL_RANK": "1"}
    own = {key: changes.pop(key) for key in list(changes) if key in names}
    return _changed({f"OMPI_COMM_WORLD_{k}": v for k, v in {**names, **own}.items()} | {"PMIX_NAMESPACE": "7"}, changes)


def job(**changes):
    """Variables of pod 1 of the indexed Job "fit", with what the manifest has to give."""
    names = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "JOB_COMPLETION_INDEX": "1",
        "HOSTNAME": "fit-1",
        "TFDIST_WORKERS": "3",
        "TFDIST_SUBDOMAIN": "fit-pods",
    }
    return _changed(names, changes)


def job_set(**changes):
    names = {"JOBSET_NAME": "js", "REPLICATED_JOB_NAME": "w", "REPLICATED_JOB_REPLICAS": "2", "JOB_INDEX": "1"}
    return job(**{**names, "TFDIST_WORKERS": "4", "TFDIST_SUBDOMAIN": None, "HOSTNAME": "js-w-1-1", **changes})


def sagemaker(**changes):
    return _changed({"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}, changes)


def _changed(names, changes):
    return {name: value for name, value in {**names, **changes}.items() if value is not None}


def addresses(environ):
    return read_cluster(environ).worker_addresses


# ---- what each platform means


def test_slurm_hosts_in_its_order_and_ports_by_local_rank():
    cluster = read_cluster(slurm())
    assert cluster.worker_addresses == ("gpu01:23001", "gpu01:23002", "n9:23001", "n9:23002", "n10:23001")
    assert cluster.rank == 3


@pytest.mark.parametrize(
    ("changes", "hosts"),
    [
        ({"DISTRIBUTION": "cyclic", "PROCID": "4"}, ["gpu01", "n9", "n10", "gpu01", "n9"]),
        ({"DISTRIBUTION": "block:cyclic,Pack"}, ["gpu01", "gpu01", "n9", "n9", "n10"]),
        (
            {
                "DISTRIBUTION": "plane",
                "DIST_PLANESIZE": "2",
                "STEP_TASKS_PER_NODE": "3,1(x2)",
                "PROCID": "2",
                "LOCALID": "0",
            },
            ["gpu01", "gpu01", "n9", "n10", "gpu01"],
        ),
    ],
)
def test_slurm_distributions_as_srun_deals_tasks(changes, hosts):
    assert [address.partition(":")[0] for address in addresses(slurm(**changes))] == hosts


def test_slurm_ports_follow_from_the_job_where_none_or_too_few_are_reserved():
    few, none = slurm(STEP_RESV_PORTS="23001"), slurm(STEP_RESV_PORTS=None)
    assert addresses(few) == addresses(none) == addresses({**none, "SLURM_PROCID": "2", "SLURM_LOCALID": "0"})
    first, second = (int(address.partition(":")[2]) for address in addresses(none)[:2])
    assert 12000 <= first < 32000
    assert second == first + 1
    assert addresses({**none, "SLURM_STEP_ID": "1"}) != addresses(none)
    assert addresses({**slurm(), "TFDIST_PORT": "4000"})[:2] == ("gpu01:4000", "gpu01:4001")


def test_slurm_on_one_node_uses_loopback_and_one_task_is_local():
    node = {"STEP_NODELIST": "n9", "STEP_NUM_TASKS": "2", "STEP_TASKS_PER_NODE": "2", "PROCID": "1", "NODEID": "0"}
    assert addresses(slurm(**node)) == ("127.0.0.1:23001", "127.0.0.1:23002")
    assert read_cluster(slurm(STEP_NUM_TASKS="1", PROCID="0")).is_local
    assert read_cluster({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1"}).is_local


def test_indexed_job_names_pods_by_index():
    cluster = read_cluster(job())
    assert cluster.worker_addresses == tuple(f"fit-{index}.fit-pods:2222" for index in range(3))
    assert cluster.rank == 1
    assert addresses(job(HOSTNAME="node7", JOB_NAME="fit", TFDIST_PORT="5000"))[0] == "fit-0.fit-pods:5000"
    assert read_cluster(job(TFDIST_WORKERS="1")).is_local


def test_job_set_counts_jobs_then_pods_and_has_its_name_for_subdomain():
    cluster = read_cluster(job_set())
    assert cluster.worker_addresses == tuple(f"js-w-{j}-{p}.js:2222" for j in range(2) for p in range(2))
    assert cluster.rank == 3


def test_stateful_set_reads_its_ordinal_from_the_host_name():
    environ = job(JOB_COMPLETION_INDEX=None, HOSTNAME="web-app-2")
    assert read_cluster(environ).address == "web-app-2.fit-pods:2222"
    assert read_cluster(_changed(environ, {"TFDIST_WORKERS": None})).is_local


def test_mpi_on_one_host_is_on_loopback():
    found = [read_cluster(mpi(LOCAL_SIZE="4", RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(4)]
    assert len({cluster.worker_addresses for cluster in found}) == 1
    assert [cluster.rank for cluster in found] == [0, 1, 2, 3]
    assert all(address.startswith("127.0.0.1:") for address in found[0].worker_addresses)
    assert read_cluster(mpi(SIZE="1", RANK="0", LOCAL_SIZE="1", LOCAL_RANK="0")).is_local


@pytest.mark.parametrize(
    "hosts",
    [
        {"TFDIST_HOSTS": "a, b"},
        {"TFDIST_HOSTS": "a,a,b,b"},
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a,b"},
        {"SM_HOSTS": '["a", "b"]', "SM_CURRENT_HOST": "b"},
    ],
)
def test_mpi_on_several_hosts_takes_them_from_what_is_around(hosts):
    assert addresses({**mpi(), **hosts, "TFDIST_PORT": "9000"}) == ("a:9000", "a:9001", "b:9000", "b:9001")


def test_sagemaker_hosts_from_variables_or_its_file(tmp_path):
    expected = ("algo-1:2222", "algo-2:2222")
    assert addresses(sagemaker()) == expected
    text = json.dumps({"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"})
    assert addresses({"SM_RESOURCE_CONFIG": text}) == expected
    (tmp_path / "resourceconfig.json").write_text(text)
    cluster = read_cluster({"TRAINING_JOB_NAME": "fit", "SM_INPUT_CONFIG_DIR": str(tmp_path)})
    assert (cluster.worker_addresses, cluster.rank) == (expected, 1)
    assert read_cluster({"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}).is_local


def test_tf_config_comes_before_every_platform_and_braces_mean_alone():
    text = Cluster({"worker": ("a:1", "b:1", "c:1", "d:1", "e:1")}, "worker", 1).to_tf_config()
    assert addresses({"TF_CONFIG": text, **slurm(), **mpi()})[0] == "a:1"
    assert read_cluster({"TF_CONFIG": "{}", **slurm()}).is_local
    assert read_cluster({"TF_CONFIG": " ", **slurm()}).num_workers == 5


def test_nothing_set_is_local():
    assert read_cluster({"PATH": "/bin", "HOSTNAME": "box-1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == Cluster.local()


# ---- Slurm's lists


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("single", "single"),
        ("n[1-3,07],gpu[01-02]-[1-2],single", "n1 n2 n3 n07 gpu01-1 gpu01-2 gpu02-1 gpu02-2 single"),
        ("r[0-1]n[08-11]", "r0n08 r0n09 r0n10 r0n11 r1n08 r1n09 r1n10 r1n11"),
        ("a[1-2]b[3-4]c[1-2]", "a1b3c1 a1b3c2 a2b3c1 a2b3c2 a1b4c1 a1b4c2 a2b4c1 a2b4c2"),
        ("n[1-2][3-4]", "n13 n14 n23 n24"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[9-10].rack[1-2].example.org", " ".join(f"n{n}.rack{r}.example.org" for n in (9, 10) for r in (1, 2))),
    ],
)
def test_node_lists_as_scontrol_shows_them(text, names):
    assert expand_nodes(text) == names.split()


def _compress(numbers):
    """Runs of numbers of one width as Slurm writes them."""
    runs = []
    for number in numbers:
        last = runs[-1][1] if runs else None
        if last and int(number) == int(last) + 1 and str(int(number)).zfill(len(runs[-1][0])) == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(first if first == last else f"{first}-{last}" for first, last in runs)


numbers = st.builds(lambda value, width: str(value).zfill(width), st.integers(0, 2000), st.integers(1, 5))


@given(st.lists(st.tuples(st.sampled_from("abz-"), st.lists(numbers, min_size=1, max_size=9)), min_size=1, max_size=4))
def test_compressed_node_lists_expand_to_what_they_were(groups):
    names = [f"n{letter}{number}" for letter, group in groups for number in group]
    assert expand_nodes(",".join(f"n{letter}[{_compress(group)}]" for letter, group in groups)) == names


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 5)), min_size=1))
def test_compressed_task_counts_expand_to_what_they_were(runs):
    text = ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in runs)
    assert expand_tasks(text) == [count for count, times in runs for _ in range(times)]


# ---- what is refused. Every line hangs, or trains apart, with plain TensorFlow.


def tf_config(cluster=None, kind=None, index=None, **other):
    task = {} if kind is None else {"type": kind, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, **other})}


def workers(*listed, index=0):
    return tf_config({"worker": listed}, "worker", index)


TWO = workers("a:1", "b:1")
WITH_PS = tf_config({"worker": ["a:1", "b:1"], "ps": ["p:1"]}, "worker", 0)
SPARSE = tf_config({"worker": {"1": "b:1"}}, "worker", 1)

REFUSED = [
    # addresses
    (workers("a:1", "a:1"), "worker 0 and worker 1 have one address, a:1"),
    (tf_config({"chief": ["A.b:1"], "worker": ["a.B.:1"]}, "chief", 0), "chief and worker 0 have one address"),
    (workers("localhost:1", "127.0.0.1:1"), "have one address"),
    (workers("a:0", "b:1"), "port 0 is not a port"),
    (workers("a:", "b:1"), "port missing is not a port"),
    (workers("a", "b:1"), "'a' has no port. An address is host:port; write it as 'a:2222'"),
    (workers("a:65536", "b:1"), "port 65536 is not a port"),
    (workers("a:http", "b:1"), "port http is not a port"),
    (workers("fe80::1:2222", "b:1"), "stands in brackets. Write it as [fe80::1]:2222"),
    (workers("[fe80::1]", "b:1"), "has no port"),
    (workers("[node]:1", "b:1"), "is not an IPv6 address"),
    (workers("grpc://a:1", "b:1"), "has a scheme or a path"),
    (workers("a :1", "b:1"), "has white space"),
    (workers("a,b:1", "b:1"), "neither a host name nor an IP address"),
    (workers("0.0.0.0:1", "b:1"), "no peer can dial it"),
    (workers("localhost:1", "b:1"), "mixes localhost:1"),
    (tf_config({"worker": ["127.0.0.1:1"], "ps": ["p:1"]}, "worker", 0), "mixes 127.0.0.1:1"),
    # tasks
    (workers("a:1", "b:1", index=2), "This process is worker 2, and the cluster lists 2 worker tasks"),
    (tf_config({"worker": ["a:1"]}, "chief", 0), "lists 0 chief tasks"),
    (workers("a:1", "b:1", index=-1), "task.index is -1"),
    (workers("a:1", "b:1", index="one"), "task.index is 'one'"),
    (workers("a:1", "b:1", index=True), "task.index is True"),
    (workers("a:1", "b:1", index=None), "task.index is missing"),
    (tf_config({"worker": ["a:1", "b:1"]}), "task.type is missing"),
    (tf_config({"worker": ["a:1"]}, "tpu_worker", 0), "Task type 'tpu_worker' is unknown"),
    (tf_config({"workers": ["a:1"]}, "workers", 0), "Task type 'workers' is unknown"),
    (tf_config(None, "ps", 0), "lists 0 ps tasks"),
    (tf_config({"chief": ["a:1", "b:1"]}, "chief", 0), "2 chiefs; there is at most one"),
    (tf_config({"chief": ["a:1"], "master": ["b:1"]}, "chief", 0), "both chief and master"),
    (tf_config({"chief": ["a:1"], "evaluator": ["e:1"]}, "evaluator", 1), "evaluator 1, and the cluster lists 1"),
    # shapes
    (tf_config({"worker": {"1": "b:1"}}, "worker", 0), "gives no address for this process, worker 0"),
    (tf_config({"worker": {"x": "b:1"}}, "worker", 0), "an index of cluster.worker is 'x'"),
    (tf_config({"worker": {"999999999": "b:1"}}, "worker", 0), "An index is a whole number in [0, 100000)"),
    (workers(None, "b:1", index=1), "null for an address"),
    (workers(2222, "b:1", index=1), "Address 2222 is not text"),
    (tf_config({"worker": 3}, "worker", 0), 'cluster.worker is 3. It has the form ["host:port", ...]'),
    (tf_config(["a:1"], "worker", 0), 'cluster is ["a:1"]. It has the form'),
    ({"TF_CONFIG": '["a:1"]'}, "It has the form"),
    ({"TF_CONFIG": '{"cluster": {"worker": ["a:1",]}}'}, "TF_CONFIG is not JSON"),
    ({"TF_CONFIG": "{'cluster': {}}"}, "Quote names with double quotes"),
    # more processes than tasks
    ({**TWO, **slurm()}, "SLURM_STEP_NUM_TASKS says that 5 processes were started, and the cluster has 2"),
    ({**TWO, **mpi()}, "OMPI_COMM_WORLD_SIZE says that 4 processes"),
    ({**TWO, "TFDIST_WORKERS": "3"}, "TFDIST_WORKERS says that 3 processes"),
    ({**TWO, **sagemaker(SM_HOSTS='["x", "y", "z"]')}, "SM_HOSTS says that 3 processes"),
    ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "PMI_SIZE says that 2 processes were started, and the cluster has 1"),
    ({"WORLD_SIZE": "4", "RANK": "3"}, "WORLD_SIZE says that 4 processes were started, and the cluster has 1"),
    ({"TFDIST_WORKERS": "2"}, "TFDIST_WORKERS says that 2 processes were started, and the cluster has 1"),
    # Slurm
    ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "Put srun before the command"),
    (slurm(STEP_TASKS_PER_NODE="2,1(x2)"), "Slurm says 5 tasks (SLURM_STEP_NUM_TASKS), but lists 4 on 3 nodes"),
    (slurm(STEP_NODELIST="gpu01"), "and 1 nodes (SLURM_STEP_NODELIST)"),
    (slurm(STEP_NODELIST="n[9-"), "Node list 'n[9-': 'n[9-' is not understood"),
    (slurm(STEP_NODELIST="n[5-3],a,b"), "'5-3' is not understood"),
    (slurm(STEP_NODELIST=None), "Node list ''"),
    (slurm(STEP_NODELIST="n[1-99999999]"), "'1-99999999' is not understood"),
    (slurm(STEP_TASKS_PER_NODE="2(3)"), "'2(3)' is not a number of tasks"),
    (slurm(STEP_NUM_TASKS="many"), "SLURM_STEP_NUM_TASKS='many' is not a whole number"),
    (slurm(PROCID=None), "SLURM_PROCID is not set"),
    (slurm(PROCID="5"), "SLURM_PROCID=5, but the step has 5 tasks"),
    (slurm(PROCID="1"), "Task 1 should be task 1 of node 0, gpu01, and Slurm says that it is task 1 of node 1, n9"),
    (slurm(DISTRIBUTION="arbitrary"), "srun --distribution=block"),
    ({**slurm(), "TFDIST_PORT": "70000"}, "TFDIST_PORT=70000 is not a port"),
    # Kubernetes
    (job(TFDIST_WORKERS=None), "TFDIST_WORKERS is not set. A pod of an indexed Job"),
    (job(TFDIST_WORKERS="0"), "TFDIST_WORKERS='0' is not a whole number of at least 1"),
    (job(TFDIST_SUBDOMAIN=None), "TFDIST_SUBDOMAIN is not set"),
    (job(HOSTNAME="node7"), "Set JOB_NAME"),
    (job(JOB_COMPLETION_INDEX="3", HOSTNAME="fit-3"), "This process is worker 3, and the cluster lists 3"),
    (job(JOB_COMPLETION_INDEX=None, HOSTNAME="fit-abcde"), "not that of a pod of an indexed Job"),
    (job_set(REPLICATED_JOB_NAME=None), "REPLICATED_JOB_NAME is not"),
    (job_set(JOB_INDEX=None), "JOB_INDEX is not set"),
    (job_set(TFDIST_WORKERS="5"), "does not divide by REPLICATED_JOB_REPLICAS=2"),
    # Open MPI
    (mpi(), "Set TFDIST_HOSTS to the hosts"),
    (mpi(TFDIST_HOSTS="a,b,c"), "TFDIST_HOSTS has 3 hosts"),
    (mpi(TFDIST_HOSTS="a,b,a,b", LOCAL_RANK="0"), "Rank 3 should be process 1 on b"),
    (mpi(RANK=None), "OMPI_COMM_WORLD_RANK is not set"),
    # SageMaker
    (sagemaker(SM_CURRENT_HOST="algo-3"), "this one is 'algo-3'"),
    (sagemaker(SM_HOSTS="algo-1,algo-2"), "which is not JSON"),
    (sagemaker(SM_HOSTS='{"a": 1}'), "should be a list of names"),
    ({"SM_RESOURCE_CONFIG": "[]"}, "should be a JSON object"),
]

# A strategy that cannot serve the cluster.
UNSERVED = [
    (WITH_PS, "multiworker", "strategy 'multiworker' with 1 ps tasks in the cluster"),
    (WITH_PS, "mirrored", "only strategy 'ps' has use for them"),
    (WITH_PS, "auto", "not there yet"),
    (TWO, "ps", "needs ps tasks, and the cluster has none"),
    (TWO, "single", "the cluster has 2 workers: each would train a model of its own"),
    (SPARSE, "auto", "gives no address for worker 0"),
    ({}, "multi-worker", "did you mean 'multiworker'?"),
]


@pytest.mark.parametrize(
    ("environ", "kind", "fragment"),
    [(environ, "auto", fragment) for environ, fragment in REFUSED] + UNSERVED,
)
def test_bad_environment_is_refused(environ, kind, fragment):
    with pytest.raises(UserError) as error:
        check_kind(kind, read_cluster(environ))
    assert fragment in str(error.value)
    assert error.value.exit_code == 64


def test_refusal_needs_no_tensorflow():
    code = (
        "import sys; from tfdist.environments import read_cluster; from tfdist.errors import TfdistError\n"
        "try: read_cluster()\n"
        "except TfdistError as error: sys.exit(error.exit_code + ('tensorflow' in sys.modules))\n"
    )
    environ = {**os.environ, **workers("a:0", "b:1")}
    root = pathlib.Path(__file__).parents[1]
    ended = subprocess.run([sys.executable, "-c", code], env=environ, cwd=root, check=False, timeout=60)
    assert ended.returncode == 64


@pytest.mark.parametrize("kind", ["auto", "single", "mirrored", "multiworker", "ps"])
def test_evaluator_is_served_by_every_kind(kind):
    check_kind(kind, read_cluster(tf_config({"chief": ["a:1"], "worker": ["b:1"], "ps": ["p:1"]}, "evaluator", 0)))


@pytest.mark.parametrize(
    ("environ", "devices", "kind", "why"),
    [
        ({}, 1, "single", "the cluster has one worker, and it has one device"),
        ({}, 4, "mirrored", "it has 4 devices"),
        (TWO, 4, "multiworker", "the cluster has 2 workers"),
        (WITH_PS, 1, "ps", "parameter servers"),
        (tf_config({"worker": ["a:1", "b:1"]}, "evaluator", 0), 2, "mirrored", "an evaluator trains with nobody"),
    ],
)
def test_auto_follows_cluster_and_devices(environ, devices, kind, why):
    chosen, reason = choose_kind(read_cluster(environ), devices)
    assert chosen == kind
    assert why in reason


def test_scheduler_with_fewer_processes_than_tasks_is_not_our_error():
    with pytest.raises(ClusterError):
        read_cluster({**TWO, "TFDIST_WORKERS": "3"})
    assert read_cluster({**TWO, "SLURM_STEP_NUM_TASKS": "1"}).num_workers == 2


@pytest.mark.parametrize(
    ("environ", "service"),
    [
        ({}, None),
        ({"TFDIST_DATA_SERVICE": " ", "TFDIST_DATA_WORKERS": ""}, None),
        ({"TFDIST_DATA_SERVICE": "grpc://a:5050", "TFDIST_DATA_WORKERS": "3"}, ("grpc://a:5050", 3)),
    ],
)
def test_data_service_is_read(environ, service):
    assert read_data_service(environ) == service


@pytest.mark.parametrize(
    "environ",
    [
        {"TFDIST_DATA_SERVICE": "grpc://a:5050"},
        {"TFDIST_DATA_WORKERS": "3"},
        {"TFDIST_DATA_SERVICE": "a:5050", "TFDIST_DATA_WORKERS": "3"},
        {"TFDIST_DATA_SERVICE": "grpc://a:5050", "TFDIST_DATA_WORKERS": "0"},
    ],
)
def test_half_a_data_service_is_refused(environ):
    with pytest.raises(ClusterError, match="TFDIST_DATA_WORKERS="):
        read_data_service(environ)


def test_full_size_of_an_elastic_job_is_read():
    assert [read_full_workers({}), read_full_workers({"TFDIST_FULL_WORKERS": "4"})] == [None, 4]
    with pytest.raises(ClusterError, match="TFDIST_FULL_WORKERS='0' is not a whole number of at least 1"):
        read_full_workers({"TFDIST_FULL_WORKERS": "0"})
