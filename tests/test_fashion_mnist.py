"""The example `examples/fashion_mnist`: 70,000 real images, prepared offline, read through TFDS and trained on."""

import gzip
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from examples.fashion_mnist.prepare import IDX_DIR
from examples.fashion_mnist.task import make_task
from tfdist.batching import Share
from tfdist.errors import DataError

pytestmark = pytest.mark.process

ROOT = pathlib.Path(__file__).parents[1]


def run(*arguments, timeout=600):
    """`(exit code, standard output, standard error)` of `python -m ...` in the repository."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def prepare(data_dir, *arguments):
    return run("examples.fashion_mnist.prepare", f"--data_dir={data_dir}", *arguments)


def accuracy(*arguments):
    """The held-out accuracy that a training run prints."""
    code, output, errors = run(*arguments)
    assert code == 0, errors
    return float(re.search(r"Held-out accuracy ([\d.]+)", output).group(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """TFDS's folder with the prepared data set."""
    return prepared(tmp_path_factory.mktemp("tfds"))


@pytest.fixture(scope="module")
def folder_of_records(tmp_path_factory):
    """The same in TFRecord files."""
    return prepared(tmp_path_factory.mktemp("tfds"), "--file_format=tfrecord")


def prepared(folder, *arguments):
    code, output, errors = prepare(folder, *arguments)
    assert code == 0, errors
    assert f"fashion_mnist lies in {folder}" in output
    assert "Generating train examples" in errors  # the progress bar
    return folder


def train(folder, workdir):
    return (
        "tfdist.train",
        "--config=configs/fashion_mnist.py",
        f"--config.task.data_dir={folder}",
        f"--workdir={workdir}",
    )


def idx(name, header):
    with gzip.open(pathlib.Path(IDX_DIR) / name) as file:
        return np.frombuffer(file.read()[header:], np.uint8)


@pytest.mark.parametrize("files", ["folder", "folder_of_records"])
def test_every_image_arrives_as_it_lies_in_the_idx_files(files, request):
    folder = request.getfixturevalue(files)
    data = make_task(data_dir=str(folder)).eval_data()
    batches = [batch for _, _, batch in data.worker_batches(1000, Share())]
    images = np.concatenate([np.rint(image * 255) for image, _ in batches]).astype(np.uint8).reshape(10_000, 784)
    labels = np.concatenate([label for _, label in batches])
    expected = idx("t10k-images-idx3-ubyte.gz", 16).reshape(10_000, 784)
    by_content = np.lexsort(np.column_stack([images, labels]).T)
    of_files = np.column_stack([expected, idx("t10k-labels-idx1-ubyte.gz", 8)])
    expected_order = np.lexsort(of_files.T)
    np.testing.assert_array_equal(np.column_stack([images, labels])[by_content], of_files[expected_order])
    assert make_task(data_dir=str(folder)).train_data(0).examples == 60_000


def test_what_is_prepared_stays(folder):
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*.array_record*")}
    assert len(files) == 2
    assert prepare(folder)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.array_record*")} == files


def test_missing_files_name_the_package(tmp_path):
    code, _, errors = prepare(tmp_path, f"--idx_dir={tmp_path}")
    assert code == 64
    assert f"{tmp_path}/train-images-idx3-ubyte.gz is missing. Run `apt-get install dataset-fashion-mnist`" in errors
    assert "Traceback" not in errors
    with pytest.raises(DataError, match="not prepared.*python -m examples.fashion_mnist.prepare"):
        make_task(data_dir=str(tmp_path)).train_data(0)


def test_one_epoch_learns_most_of_it(folder, tmp_path):
    once = ("--config.epochs=1", "--config.learning_rate.warmup=50 steps")
    assert accuracy(*train(folder, tmp_path), *once) > 0.8


@pytest.mark.full
def test_two_workers_reach_the_accuracy_of_one_device(folder, tmp_path):
    """At four times the base batch, with the linear rule and warm-up, as the config has it."""
    alone = accuracy(*train(folder, tmp_path / "one"))
    together = accuracy(
        *("tfdist.launch", "--workers=2", f"--workdir={tmp_path / 'two'}", "--", sys.executable, "-m"),
        *(*train(folder, tmp_path / "two"), "--strategy=multiworker"),
    )
    assert alone > 0.895
    assert abs(together - alone) <= 0.005
