"""A folder of checkpoints: what was committed is what is read, and nothing else ever is."""

import os
import pathlib
import time
import uuid

import pytest

from tfdist.checkpoint import FORMAT, MANIFEST, Checkpoints, Manifest, Retention
from tfdist.checkpoint.manifest import DamageError
from tfdist.errors import CheckpointError

KEEP_ALL = Retention(keep_last=1000)
ARRAYS = {"layers/dense/vars/0": {"shape": [3, 2], "dtype": "float32"}}


def writer(**files):
    """Writes files of these contents."""

    def write(directory):
        for name, content in files.items():
            pathlib.Path(directory, name).write_bytes(content)

    return write


def contents(step):
    return {"weights": b"weights of step %d " % step * 100, "state": b"%d" % step}


def save(checkpoints, *steps, metrics=None):
    for step in steps:
        write = writer(**contents(step))
        checkpoints.commit(step, write, progress={"step": step}, metrics=metrics or {}, arrays=ARRAYS)


def read(checkpoints, step):
    with checkpoints.opened(step) as directory:
        return {name: pathlib.Path(directory, name).read_bytes() for name in os.listdir(directory) if name != MANIFEST}


def fail(directory):
    pathlib.Path(directory, "weights").write_bytes(b"half of it")
    raise OSError(28, "No space left on device")


@pytest.fixture(params=["local", "ram"])
def folder(request, tmp_path):
    """The folder of checkpoints, as a local path and as a URL."""
    return str(tmp_path / "a" / "checkpoints") if request.param == "local" else f"ram://{uuid.uuid4().hex}/checkpoints"


@pytest.fixture
def local(tmp_path):
    """Checkpoints of the steps 1, 2 and 3 in a local folder."""
    checkpoints = Checkpoints(tmp_path, KEEP_ALL)
    save(checkpoints, 1, 2, 3)
    return checkpoints


def test_what_was_committed_is_found_and_read(folder):
    checkpoints = Checkpoints(folder, clock=lambda: 5.0)
    path = checkpoints.commit(
        1200, writer(**contents(1200)), progress={"epoch": 2}, metrics={"loss": 0.5}, arrays=ARRAYS
    )
    assert path == f"{folder}/step-00001200"
    found = Checkpoints(folder).newest()
    assert (found.step, found.path) == (1200, path)
    manifest = found.manifest
    assert (manifest.step, manifest.time) == (1200, 5.0)
    assert (manifest.progress, manifest.metrics, manifest.arrays) == ({"epoch": 2}, {"loss": 0.5}, ARRAYS)
    assert manifest.files["weights"].size == len(contents(1200)["weights"])
    assert "python" in manifest.versions and "tfdist" in manifest.versions
    assert read(Checkpoints(folder), 1200) == read(checkpoints, 1200) == contents(1200)


def test_a_folder_without_checkpoints_has_none(folder):
    checkpoints = Checkpoints(folder)
    assert checkpoints.newest() is None and checkpoints.steps() == []
    checkpoints.remove()
    with pytest.raises(CheckpointError, match="no checkpoint of step 7"):
        read(checkpoints, 7)


def test_the_newest_is_that_of_the_largest_step(folder):
    checkpoints = Checkpoints(folder, KEEP_ALL)
    save(checkpoints, 5, 99_999_999, 100_000_000)
    assert checkpoints.steps() == [100_000_000, 99_999_999, 5]
    assert checkpoints.newest().step == 100_000_000
    assert checkpoints.newest(before=99_999_999).step == 5
    assert checkpoints.newest(before=5) is None


def test_a_checkpoint_of_the_same_step_is_replaced(folder):
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1, 2)
    for content in (b"second", b"third"):
        checkpoints.commit(2, writer(weights=content), progress={}, metrics={}, arrays={})
        assert checkpoints.newest().step == 2
        assert read(checkpoints, 2) == {"weights": content}
        assert checkpoints.steps() == [2, 1]
    assert len(checkpoints._storage.places()) == 2


def test_a_commit_removes_those_of_later_steps(folder, caplog):
    checkpoints = Checkpoints(folder, KEEP_ALL)
    save(checkpoints, 1, 4, 5, 2)
    assert checkpoints.steps() == [2, 1]
    assert "step-00000004, step-00000005 of another course" in caplog.text


def test_a_failed_commit_leaves_nothing_and_harms_nothing(folder):
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1, 2)
    for step in (2, 3):
        with pytest.raises(OSError, match="No space left"):
            checkpoints.commit(step, fail, progress={}, metrics={}, arrays={})
    assert checkpoints.newest().step == 2
    assert read(checkpoints, 2) == contents(2)
    if os.path.isdir(folder):
        assert sorted(os.listdir(folder)) == ["step-00000001", "step-00000002"]


def test_retention_applies_after_each_commit(folder):
    checkpoints = Checkpoints(folder, Retention(keep_last=2, keep_every=100, keep_best=1, best_metric="loss"))
    for step in range(40, 400, 40):
        save(checkpoints, step, metrics={"loss": abs(step - 80)})
    assert checkpoints.steps() == [360, 320, 200, 120, 80]


def test_remove_leaves_no_folder_but_others_files(folder, tmp_path):
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1, 2)
    checkpoints.remove()
    assert checkpoints.newest() is None
    assert not os.path.exists(folder)
    save(Checkpoints(tmp_path), 1)
    (tmp_path / "notes").touch()
    Checkpoints(tmp_path).remove()
    assert os.path.exists(tmp_path / "notes") and not (tmp_path / "step-00000001").exists()


@pytest.mark.parametrize("name", ["weights", "state", MANIFEST])
def test_a_damaged_one_is_passed_over_with_the_reason(local, caplog, name):
    pathlib.Path(local.path, "step-00000003", name).write_bytes(b"what is this?")
    assert local.newest().step == 2
    assert "step-00000003 is passed over: " in caplog.text and name in caplog.text
    with pytest.raises(CheckpointError, match="step-00000003: "):
        read(local, 3)


def test_a_damaged_remote_one_is_passed_over():
    import tensorflow as tf

    checkpoints = Checkpoints(f"ram://{uuid.uuid4().hex}", KEEP_ALL)
    save(checkpoints, 1, 2, 3)
    tf.io.gfile.remove(f"{checkpoints.path}/step-00000003/weights")
    with tf.io.gfile.GFile(f"{checkpoints.path}/step-00000003/weights", "wb") as file:
        file.write(b"x" * len(contents(3)["weights"]))
    tf.io.gfile.remove(f"{checkpoints.path}/step-00000002/state")
    assert checkpoints.newest().step == 1
    with pytest.raises(CheckpointError, match="step-00000003: weights is damaged"):
        read(checkpoints, 3)


def test_a_remote_one_without_manifest_is_none_and_goes():
    import tensorflow as tf

    checkpoints = Checkpoints(f"ram://{uuid.uuid4().hex}", KEEP_ALL)
    save(checkpoints, 1)
    tf.io.gfile.makedirs(f"{checkpoints.path}/step-00000002")
    with tf.io.gfile.GFile(f"{checkpoints.path}/step-00000002/weights", "wb") as file:
        file.write(b"torn")
    assert checkpoints.newest().step == 1 and checkpoints.steps() == [1]
    save(checkpoints, 3)
    assert tf.io.gfile.listdir(checkpoints.path) == ["step-00000001", "step-00000003"]


def test_without_a_whole_one_nobody_starts_anew_silently(local):
    for step in (1, 2, 3):
        pathlib.Path(local.path, f"step-0000000{step}", "state").unlink()
    with pytest.raises(CheckpointError, match="none of its checkpoints is whole.*step-00000003: state: No such file"):
        local.newest()


def test_a_newer_format_is_not_passed_over(local, caplog):
    path = pathlib.Path(local.path, "step-00000003", MANIFEST)
    manifest = Manifest.decode(path.read_bytes())
    path.write_bytes(encode_as(FORMAT + 1, manifest))
    with pytest.raises(CheckpointError, match=f"step-00000003: format {FORMAT + 1} .*Update tfdist"):
        local.newest()
    assert local.newest(before=3).step == 2


def encode_as(version, manifest):
    import google_crc32c

    body = manifest.encode().split(b"\n", 1)[1].replace(b'"format": %d' % FORMAT, b'"format": %d' % version, 1)
    return b'{"crc32c": "%08x",\n' % google_crc32c.value(b"\n" + body) + body


def test_metrics_that_are_no_numbers_come_back(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1, metrics={"loss": float("nan"), "bound": float("-inf"), "accuracy": 0.1})
    metrics = checkpoints.newest().manifest.metrics
    assert str(metrics) == "{'loss': nan, 'bound': -inf, 'accuracy': 0.1}"
    with pytest.raises(DamageError):
        Manifest.decode(b"")


def test_a_write_that_the_disk_has_lost_meanwhile_is_no_checkpoint(local, tmp_path):
    """The kernel tells of it once, to whoever syncs first."""

    def write(directory):
        lost = pathlib.Path(directory, "lost")
        lost.symlink_to("/proc/version")  # cannot be synced
        time.sleep(0.5)
        lost.unlink()

    with pytest.raises(OSError, match="Invalid argument"):
        local.commit(4, write, progress={}, metrics={}, arrays=ARRAYS)
    assert local.steps() == [3, 2, 1]
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_removed_while_it_is_written_does_no_harm(local):
    def write(directory):
        for number in range(2000):
            passing = pathlib.Path(directory, f"passing-{number}")
            passing.write_bytes(b"")
            passing.unlink()
        writer(**contents(4))(directory)

    local.commit(4, write, progress={}, metrics={}, arrays=ARRAYS)
    assert read(local, 4) == contents(4)
