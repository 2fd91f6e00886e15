"""Kills, full disks and damage of any kind: an older whole checkpoint or a clear error, never a wrong one."""

import contextlib
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.full_disk import full_disk
from tfdist.checkpoint import MANIFEST, Checkpoints, Manifest, Retention, Saver
from tfdist.checkpoint.manifest import DamageError
from tfdist.errors import CheckpointError

ROOT = pathlib.Path(__file__).parent.parent
PATIENCE = 60.0
STEPS = (1, 2, 3)
FILES = ("weights", "state")


def write(content, directory):
    for name in FILES:
        pathlib.Path(directory, name).write_bytes(f"{name} of {content} ".encode() * 20)


def save(checkpoints, step, content=None):
    checkpoints.commit(step, functools.partial(write, content or step), progress={}, metrics={"loss": 1.0}, arrays={})


def content(directory):
    """What `write` has written: the same in all files, or an error."""
    (one,) = {pathlib.Path(directory, name).read_text().split()[2] for name in FILES}
    for name in FILES:
        assert pathlib.Path(directory, name).read_text() == f"{name} of {one} " * 20
    return one


def newest_content(path):
    checkpoints = Checkpoints(path)
    with checkpoints.opened(checkpoints.newest().step) as directory:
        return content(directory)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A folder with the checkpoints of three steps."""
    path = tmp_path_factory.mktemp("three")
    for step in STEPS:
        save(Checkpoints(path), step)
    return path


def truncate(place, name, size):
    os.truncate(place / name, size % (place / name).stat().st_size)


def flip(place, name, bit):
    data = bytearray((place / name).read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    (place / name).write_bytes(data)


def append(place, name, number):
    with open(place / name, "ab") as file:
        file.write(b"\n" * (1 + number % 9))


def lose(place, name, _):
    (place / name).unlink()


def take_from_another(place, name, number):
    with tempfile.TemporaryDirectory() as other:
        save(Checkpoints(other), 10 + number)
        shutil.copy(pathlib.Path(other, f"step-{10 + number:08d}", name), place / name)


def become_folder(place, name, _):
    (place / name).unlink()
    (place / name).mkdir()


def lose_all(place, *_):
    for file in place.iterdir():
        file.unlink()


def become_file(place, *_):
    shutil.rmtree(place)
    place.touch()


DAMAGES = [truncate, flip, append, lose, take_from_another, become_folder, lose_all, become_file]
damages = st.tuples(st.sampled_from(DAMAGES), st.sampled_from([*FILES, MANIFEST]), st.integers(0, 2**15))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.none() | damages, min_size=3, max_size=3), st.lists(st.sampled_from(STEPS), max_size=2))
def test_never_a_wrong_load(three, damages, with_foreign_files):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "checkpoints")
        shutil.copytree(three, folder)
        for step, damage in zip(STEPS, damages, strict=True):
            if damage:
                damage[0](folder / f"step-{step:08d}", *damage[1:])
        add_foreign(folder, with_foreign_files)
        check(folder, [step for step, damage in zip(STEPS, damages, strict=True) if not damage])


def add_foreign(folder, steps):
    (folder / "step-7").mkdir()
    (folder / "step-00000008.keras").touch()
    (folder / ".partial-of-a-killed-process").mkdir()
    for step in steps:
        with contextlib.suppress(NotADirectoryError):
            (folder / f"step-{step:08d}" / "notes.txt").write_text("mine")


def check(folder, whole):
    if not whole:
        with pytest.raises(CheckpointError, match="none of its checkpoints is whole"):
            Checkpoints(folder).newest()
        return
    assert Checkpoints(folder).newest().step == whole[-1]
    assert newest_content(folder) == str(whole[-1])
    for step in set(STEPS) - set(whole):
        with pytest.raises(CheckpointError), Checkpoints(folder).opened(step):
            pass


def test_any_flipped_bit_of_a_manifest_is_found(three):
    manifest = (three / "step-00000003" / MANIFEST).read_bytes()
    assert Manifest.decode(manifest).step == 3
    for bit in range(8 * len(manifest)):
        data = bytearray(manifest)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError):
            Manifest.decode(bytes(data))


def test_any_truncated_manifest_is_found(three):
    manifest = (three / "step-00000003" / MANIFEST).read_bytes()
    for size in range(len(manifest)):
        with pytest.raises(DamageError):
            Manifest.decode(manifest[:size])


def test_a_renamed_checkpoint_is_not_of_its_new_step(three, tmp_path):
    shutil.copytree(three / "step-00000002", tmp_path / "step-00000009")
    with pytest.raises(CheckpointError, match="is of step 2"):
        Checkpoints(tmp_path).newest()


def test_damaged_ones_go_with_the_next_commit(three, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(three, folder)
    flip(folder / "step-00000001", "weights", 5)
    become_file(folder / "step-00000003")
    checkpoints = Checkpoints(folder, Retention(keep_last=9))
    assert checkpoints.newest().step == 2
    save(checkpoints, 4)
    assert checkpoints.steps() == [4, 2, 1]  # nobody has read the first, which has its size
    with pytest.raises(CheckpointError, match="step-00000001: weights is damaged"):
        checkpoints.newest(before=2)
    save(checkpoints, 5)
    assert checkpoints.steps() == [5, 4, 2]


# The process is killed at the n-th thing that it does to the file system; the first that gets through ends the series.
KILLED = """
import itertools, os, shutil, signal, sys
from tfdist.checkpoint import Checkpoints, Retention
from tests.test_checkpoint_damage import save

EVENTS = {"open", "shutil.rmtree", *(f"os.{name}" for name in "listdir mkdir remove rename rmdir scandir".split())}
base, cases, step = sys.argv[1], sys.argv[2], int(sys.argv[3])

def commit(folder, number):
    left = itertools.count(-number)
    def kill(event, arguments):
        if event in EVENTS and next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(kill)
    save(Checkpoints(folder, Retention(keep_last=2)), step, "new")
    os._exit(0)

for number in itertools.count():
    folder = os.path.join(cases, str(number))
    shutil.copytree(base, folder)
    child = os.fork()
    if not child:
        commit(folder, number)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


@pytest.mark.parametrize("step", [2, 3, 4], ids=["another course", "again", "next"])
def test_killed_at_any_point_of_a_commit(three, tmp_path, step):
    command = [sys.executable, "-c", KILLED, str(three), str(tmp_path), str(step)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=PATIENCE)
    found = [newest_content(tmp_path / str(number)) for number in range(len(os.listdir(tmp_path)))]
    assert set(found) == {"3", "new"} and len(found) > 20
    if step >= 3:
        assert found == sorted(found)
    for number in range(len(found)):
        save(Checkpoints(tmp_path / str(number)), 5)
        assert not [name for name in os.listdir(tmp_path / str(number)) if not name.startswith("step-")]
        assert newest_content(tmp_path / str(number)) == "5"


TORN = """
import pathlib, sys
from tfdist.checkpoint import Checkpoints

def write(directory):
    with open(directory + "/weights", "wb") as file:
        file.write(b"half of it")
        file.flush()
        print("writing", flush=True)
        sys.stdin.read()

Checkpoints(sys.argv[1]).commit(4, write, progress={}, metrics={}, arrays={})
"""


def test_killed_while_it_writes(three, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(three, folder)
    command = [sys.executable, "-c", TORN, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert newest_content(folder) == "3"
    assert len(os.listdir(folder)) == 4
    save(Checkpoints(folder), 4)
    assert sorted(os.listdir(folder)) == ["step-00000002", "step-00000003", "step-00000004"]


def test_a_full_disk_harms_nothing_and_is_survived(three, tmp_path, caplog):
    folder = tmp_path / "checkpoints"
    shutil.copytree(three, folder)
    checkpoints, saver = Checkpoints(folder), Saver(max_failed_saves=2)
    with full_disk(100_000):
        saver.save(lambda: save(checkpoints, 4, "4" * 10_000), 4)
        saver.wait()
    assert saver.failed == 1 and "Free some space" in caplog.text
    assert sorted(os.listdir(folder)) == ["step-00000001", "step-00000002", "step-00000003"]
    saver.save(lambda: save(checkpoints, 5), 5)
    saver.wait()
    assert saver.failed == 0 and newest_content(folder) == "5"


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", "nosuchscheme://bucket/checkpoints"):
        with pytest.raises(OSError):
            save(Checkpoints(path), 1)
        with pytest.raises(CheckpointError, match="cannot be listed"):
            Checkpoints(path).newest()


def test_whoever_reads_beside_the_writer_finds_a_whole_one(tmp_path):
    save(Checkpoints(tmp_path), 1)
    writer = Checkpoints(tmp_path, Retention(keep_last=1))
    thread = threading.Thread(target=lambda: [save(writer, step) for step in range(2, 60)])
    thread.start()
    seen = []
    while thread.is_alive():
        found = Checkpoints(tmp_path).newest()
        with contextlib.suppress(OSError, CheckpointError), Checkpoints(tmp_path).opened(found.step) as directory:
            assert content(directory) == str(found.step)
            seen.append(found.step)
    thread.join()
    assert seen == sorted(seen) and len(seen) > 1
    assert Checkpoints(tmp_path).steps() == [59]
