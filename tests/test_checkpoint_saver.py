"""The saver: one write at a time beside the training, failures loud and counted, none cut off by the process's end."""

import errno
import functools
import pathlib
import subprocess
import sys
import threading
import weakref

import pytest

from tfdist.checkpoint import Saver

ROOT = pathlib.Path(__file__).parent.parent
PATIENCE = 60.0


def fails(number=errno.ENOSPC):
    raise OSError(number, "no")


@pytest.fixture
def gate():
    """An event that is set at the end, so that no thread waits for it."""
    event = threading.Event()
    yield event
    event.set()


def test_a_save_runs_beside_its_caller(gate):
    saver, done = Saver(), []
    saver.save(lambda: done.append(gate.wait(PATIENCE)), 1)
    assert saver.busy and not done and not saver.wait(0)
    gate.set()
    assert saver.wait(PATIENCE) and not saver.busy
    assert done == [True]


def test_one_save_waits_for_the_one_before():
    saver, order, barrier = Saver(), [], threading.Event()

    def slow():
        barrier.wait(PATIENCE)
        order.append("first")

    saver.save(slow, 1)
    threading.Timer(0.05, barrier.set).start()
    saver.save(lambda: order.append("second"), 2)
    assert order[0] == "first"
    assert saver.wait(PATIENCE) and order == ["first", "second"]


def test_failures_in_a_row_end_the_training(caplog):
    saver = Saver(max_failed_saves=2)
    for job, failed in ((fails, 1), (lambda: None, 0), (fails, 1)):
        saver.save(job, 10)
        assert saver.wait() and saver.failed == failed and saver.failure is None
    saver.save(fails, 20)
    assert saver.wait()
    assert "step 20" in str(saver.failure) and "2 in a row" in str(saver.failure)
    assert "Free some space" in str(saver.failure)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "Free some space"), (errno.EROFS, "Let this user write"), (errno.ESTALE, "is mounted")],
)
def test_a_failure_says_what_to_do(caplog, number, remedy):
    saver = Saver()
    saver.save(lambda: fails(number), 3)
    saver.wait()
    assert remedy in caplog.text and "step 3" in caplog.text


def test_seconds_of_the_last_save_that_succeeded():
    times = iter([0.0, 2.5, 10.0])
    saver = Saver(clock=lambda: next(times))
    assert saver.last_seconds is None
    saver.save(lambda: None, 1)
    saver.save(fails, 2)
    saver.wait()
    assert saver.last_seconds == 2.5


def test_what_was_saved_is_let_go():
    class Values:
        pass

    values, saver = Values(), Saver()
    alive = weakref.ref(values)
    saver.save(functools.partial(repr, values), 1)
    del values
    assert saver.wait(PATIENCE) and alive() is None


PROGRAM = """
import pathlib, sys, time
from tfdist.checkpoint import Checkpoints, Saver

def write(directory):
    time.sleep(1)
    pathlib.Path(directory, "weights").write_bytes(b"all of them")

checkpoints = Checkpoints(sys.argv[1])
Saver().save(lambda: checkpoints.commit(8, write, progress={}, metrics={}, arrays={}), 8)
"""


@pytest.mark.parametrize("end", ["", "sys.exit(75)", "raise RuntimeError"])
def test_the_process_does_not_end_before_its_last_save(tmp_path, end):
    from tfdist.checkpoint import Checkpoints

    command = [sys.executable, "-c", PROGRAM + end, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, timeout=PATIENCE, check=False, stderr=subprocess.DEVNULL)
    assert done.returncode == {"": 0, "sys.exit(75)": 75, "raise RuntimeError": 1}[end]
    assert Checkpoints(tmp_path).newest().step == 8
