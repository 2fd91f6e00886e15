import os
import sys
import time

import pytest

from tfdist.environments import read_cluster
from tfdist.testing import ClusterFailure, run_cluster


def place(offset):
    cluster = read_cluster()
    return cluster.rank + offset, cluster.num_workers


def fail_on_worker_one():
    print("a line of", read_cluster().name)
    if read_cluster().rank == 1:
        raise KeyError("only here")
    time.sleep(60)


def exit_as_echo():
    if read_cluster().rank == 0:
        sys.exit(69)
    time.sleep(0.5)
    raise KeyError("the cause")


def sleep_for_ever(pids):
    with open(os.path.join(pids, str(read_cluster().rank)), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)


def variables(*names):
    return [os.environ.get(name) for name in names]


def test_results_come_back_by_rank():
    assert run_cluster(place, workers=3, args=(10,)) == [(10, 3), (11, 3), (12, 3)]


def test_env_sets_and_removes_variables(monkeypatch):
    monkeypatch.setenv("TFDIST_REMOVED", "1")
    env = {"TFDIST_SET": "2", "TFDIST_REMOVED": None}
    assert run_cluster(variables, workers=1, args=("TFDIST_SET", "TFDIST_REMOVED"), env=env) == [["2", None]]


def test_failure_of_one_task_ends_the_others_and_shows_its_traceback():
    with pytest.raises(ClusterFailure) as failure:
        run_cluster(fail_on_worker_one, timeout=60)
    assert failure.value.exit_codes == [None, 1]
    assert "worker 1 failed" in str(failure.value) and "KeyError: 'only here'" in str(failure.value)
    assert "a line of worker 1" in failure.value.outputs[1]


def test_cause_is_named_rather_than_its_echo():
    with pytest.raises(ClusterFailure, match="worker 1 failed") as failure:
        run_cluster(exit_as_echo, timeout=60)
    assert failure.value.exit_codes == [69, 1]


def test_timeout_kills_every_process(tmp_path):
    with pytest.raises(ClusterFailure, match="not finished after 2 s"):
        run_cluster(sleep_for_ever, args=(str(tmp_path),), timeout=2)
    pids = [int(file.read_text()) for file in tmp_path.iterdir()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_local_function_is_refused():
    with pytest.raises(ValueError, match="top level of a module"):
        run_cluster(lambda: None)
