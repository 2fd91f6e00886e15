"""The tf.data service: the batches of data with random access, by way of servers in this process and of real ones."""

import collections
import os
import pathlib
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from servers import services_of
from serving import numbers, read_all, read_served

import tfdist
from tfdist.batching import Share
from tfdist.data import from_arrays, from_dataset, served
from tfdist.data.service import service_errors
from tfdist.data_service import main
from tfdist.errors import DataError, PeerLostError
from tfdist.launch.local import free_ports
from tfdist.ledger.report import read_report
from tfdist.testing import run_cluster

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def services():
    with services_of((1, 1), (2, 2), (3, 3)) as (addresses, *_):
        yield list(zip(addresses, (1, 2, 3)))


@pytest.mark.process
@pytest.mark.parametrize("trainers", [1, 2, 3])
def test_batches_are_those_without_the_service(services, trainers):
    expected = [[read_all(numbers(), Share(rank, trainers))] * 3 for rank in range(trainers)]
    assert run_cluster(read_served, workers=trainers, args=(services,), timeout=180) == expected


def first_batch(service, workers, timeout=60.0, data=None):
    data = served(data or numbers(), service=service, workers=workers, run=f"run of {workers}", timeout=timeout)
    return next(iter(data.worker_batches(6, Share())))


def test_every_iteration_starts_at_the_first_step(services):
    service, workers = services[1]
    data = served(numbers(), service=service, workers=workers, run="again")
    batches = data.worker_batches(6, Share(), drop_remainder=True)
    passes = [np.concatenate([ids for _, ids, _ in batches.as_numpy_iterator()]).tolist() for _ in range(2)]
    assert passes[0] == passes[1]
    assert len(set(passes[0])) == len(passes[0]) == 24


def test_facts_are_those_of_the_data(services):
    data = served(numbers(), service=services[0][0], workers=1, run="facts")
    assert (data.examples, data.steps_per_epoch(6), data.shares_rows) == (29, 5, False)
    assert data.element_spec == numbers().element_spec
    assert data.identity().items() > numbers().identity().items()
    assert data.with_ids().examples == 29


def test_wrong_number_of_data_workers_is_refused(services):
    with pytest.raises(DataError, match="has 3 data workers, not 2: .*Correct the number"):
        first_batch(services[2][0], 2)


def test_missing_data_worker_is_named():
    with (
        services_of((2, 1)) as ((service,), *_),
        pytest.raises(PeerLostError, match="has 1 of 2 data workers after 1 s"),
    ):
        first_batch(service, 2, timeout=1.0)


def test_servers_that_hang_are_told():
    with services_of((1, 1)) as ((service,), _, halt):
        halt()
        with pytest.raises(PeerLostError, match="does not say which data workers it has"):
            first_batch(service, 1, timeout=0.1)


def test_missing_dispatcher_is_named():
    service = f"grpc://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(PeerLostError, match="does not answer after 0.1 s"):
        first_batch(service, 1, timeout=0.1)


def test_dispatcher_that_knows_no_data_workers_is_refused():
    with services_of((0, 1)) as ((service,), *_), pytest.raises(DataError, match="does not know its data workers"):
        first_batch(service, 1)


def test_data_that_python_reads_is_refused(tmp_path):
    np.arange(9).tofile(tmp_path / "numbers")
    mapped = from_arrays(np.memmap(tmp_path / "numbers", np.int64, "r"))
    with pytest.raises(DataError, match="read by Python code .*Leave the service out"):
        first_batch("grpc://127.0.0.1:1", 1, data=mapped)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": from_dataset(tf.data.Dataset.range(9).batch(3))}, "SharedStream.*needs data with random access"),
        ({"service": "localhost:5050"}, "'localhost:5050': the address of a dispatcher is grpc://host:port"),
        ({"workers": 0}, "workers=0.: the number of data workers is a whole number"),
    ],
)
def test_what_cannot_be_served_is_refused(changed, message):
    arguments = {"data": numbers(), "service": "grpc://a:1", "workers": 1, "run": "refused"} | changed
    with pytest.raises(DataError, match=message):
        served(arguments.pop("data"), **arguments)


def test_lost_data_worker_ends_the_training():
    with services_of((2, 2)) as ((service,), stop, _):
        batches = iter(
            served(numbers(), service=service, workers=2, run="lost").worker_batches(6, Share(), repeat=True)
        )
        next(batches)
        stop(0)
        with pytest.raises(PeerLostError, match="a data worker was lost"), service_errors():
            collections.deque(batches, maxlen=0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--role=dispatcher", "--port=5050"], "--data_workers=: a dispatcher needs it, as host:port"),
        (["--role=dispatcher", "--port=5050", "--data_workers=a:1,a:1"], "one address comes twice"),
        (["--role=worker", "--port=5051", "--dispatcher=a:1"], "--address=: a worker needs it"),
        (["--role=worker", "--port=0"], "--port=0: ports are in"),
        (["--role=trainer", "--port=1"], "invalid choice: 'trainer'"),
    ],
)
def test_door_refuses_wrong_flags(capsys, flags, message):
    assert main(flags) == 64
    assert message in capsys.readouterr().err


CONFIG = ["--config=configs/digits.py", "--config.epochs=2", "--config.task.width=4", "--config.data.ledger=true"]


@pytest.mark.process
def test_launcher_trains_with_data_workers(tmp_path):
    command = [sys.executable, "-m", "tfdist.launch", "--workers=2", "--data_workers=2", f"--workdir={tmp_path}", "--"]
    command += [sys.executable, "-m", "tfdist.train", f"--workdir={tmp_path}", *CONFIG]
    done = subprocess.run(
        [*command, "--config.learning_rate.warmup=1 epoch"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "The 2 data workers of grpc://127.0.0.1:" in done.stdout
    report = read_report(tmp_path)
    assert report.exactly_once
    assert "data-worker-1.log" in os.listdir(tmp_path / "logs")


def test_a_training_that_does_not_use_the_service_says_so(monkeypatch, caplog):
    monkeypatch.setenv("TFDIST_DATA_SERVICE", "grpc://a:1")
    monkeypatch.setenv("TFDIST_DATA_WORKERS", "2")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    tfdist.fit(model, np.zeros((4, 1)), np.zeros((4, 1)), verbose=0)
    assert "names the tf.data service grpc://a:1, which this training does not use" in caplog.text


def test_a_port_that_is_taken_is_refused(capsys):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--role=dispatcher", f"--port={port}", "--data_workers=a:1"]) == 64
    assert f"--port={port}: something listens on it already" in capsys.readouterr().err
