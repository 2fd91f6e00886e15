"""The public interface: a change of it is a change of this list."""

import importlib
import pathlib
import subprocess
import sys

import pytest

import tfdist

NAMES = [
    "BatchError",
    "CheckpointError",
    "Cluster",
    "ClusterError",
    "ConfigError",
    "DataError",
    "LossError",
    "PeerLostError",
    "Preempted",
    "TfdistError",
    "UnsupportedError",
    "UserError",
    "callbacks",
    "data",
    "enable_model_fit",
    "errors",
    "evaluate",
    "fit",
    "make_strategy",
    "predict",
    "read_cluster",
    "schedules",
    "writers",
]
MODULES = {
    "callbacks": ["BackupAndRestore", "MetricsWriter", "RollbackOnSpike", "WarmUp"],
    "data": [
        "Data",
        "as_data",
        "concatenate",
        "from_arrays",
        "from_dataset",
        "from_tfds",
        "from_tfrecords",
        "mix",
        "served",
    ],
    "schedules": ["Decay", "Scaling", "WarmUp", "auto_rule", "drop_warmup", "has_schedule", "make_schedule", "scale"],
    "writers": ["ConsoleWriter", "JsonlWriter", "ManyWriter", "TensorBoardWriter", "Writer", "make_writer"],
}
TOOLS = ["data_service", "launch", "ledger", "train"]


def test_public_names():
    assert sorted(tfdist.__all__) == NAMES
    assert all(getattr(tfdist, name) is not None for name in NAMES)
    assert set(NAMES) <= set(dir(tfdist))


@pytest.mark.parametrize("module", MODULES)
def test_public_names_of_module(module):
    found = importlib.import_module(f"tfdist.{module}")
    assert sorted(found.__all__) == MODULES[module]
    assert all(hasattr(found, name) for name in MODULES[module])


def test_every_error_is_public():
    errors = {name for name, value in vars(tfdist.errors).items() if isinstance(value, type)}
    assert errors <= set(NAMES)


def test_unknown_name_says_which_there_are():
    with pytest.raises(AttributeError, match="no attribute 'train_model'; it has BatchError, CheckpointError, Cluster"):
        tfdist.train_model  # noqa: B018


def run(*arguments):
    root = pathlib.Path(__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-m", "tfdist", *arguments], cwd=root, capture_output=True, check=False, text=True, timeout=60
    )


def test_console_script_lists_its_tools():
    listed = run("--help").stdout.splitlines()[2:]
    assert sorted(line.split()[0] for line in listed) == TOOLS


def test_console_script_refuses_unknown_tools():
    done = run("trian")
    assert (done.returncode, done.stdout) == (64, "")
    assert (
        done.stderr
        == "tfdist: there is no tool 'trian'; did you mean 'train'? It is one of train, launch, data_service, ledger.\n"
    )


def test_console_script_hands_arguments_and_exit_code_through():
    done = run("train", "--strategy=none")
    assert done.returncode == 64
    assert done.stderr.startswith("tfdist: flag --strategy=none")
