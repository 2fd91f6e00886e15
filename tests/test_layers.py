"""What starts without TensorFlow: a launcher starts in milliseconds, and messages come before TensorFlow does."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LIGHT = [
    "tfdist",
    "tfdist.__main__",
    "tfdist.batching",
    "tfdist.cluster",
    "tfdist.config",
    "tfdist.config_file",
    "tfdist.data_service",
    "tfdist.environments",
    "tfdist.errors",
    "tfdist.launch",
    "tfdist.rendezvous",
    "tfdist.scaling",
    "tfdist.task",
    "tfdist.train",
    "tfdist.workdir",
]
HEAVY = {"tensorflow", "keras", "numpy", "tensorflow_datasets"}


def imported_by(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True, timeout=60
    )
    return set(done.stdout.split())


def test_light_modules_do_not_import_tensorflow():
    statement = "\n".join(f"import {module}" for module in LIGHT)
    modules = imported_by(statement)
    assert set(LIGHT) <= modules
    assert not HEAVY & modules


@pytest.mark.parametrize("package", ["checkpoint", "cluster", "environments", "launch", "preemption", "rendezvous"])
def test_every_module_of_a_light_package_is_light(package):
    files = (ROOT / "tfdist" / package).rglob("*.py")
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.stem != "__main__"]
    assert names
    assert not HEAVY & imported_by("\n".join(f"import {name.removesuffix('.__init__')}" for name in names))


def test_public_light_names_do_not_start_tensorflow():
    statement = "import tfdist\ntfdist.read_cluster({})\ntfdist.Cluster.local()\ntfdist.ConfigError"
    assert not HEAVY & imported_by(statement)


def test_public_heavy_names_do():
    assert "tensorflow" in imported_by("import tfdist\ntfdist.fit")
