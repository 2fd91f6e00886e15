"""The ledger: what was recorded is what is counted, across kills, resumes and numbers of workers."""

import collections
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfdist.batching import EpochPlan, Share
from tfdist.errors import DataError
from tfdist.ledger import Ledger, next_run, read_report
from tfdist.ledger.packing import pack, unpack

ROOT = pathlib.Path(__file__).parent.parent
FIRST = "worker-00000.ledger"
some = settings(max_examples=150, deadline=None, derandomize=True)


def order(plan, epoch):
    return np.random.default_rng(epoch).permutation(plan.examples)


def own_ids(plan, share, step):
    """The ids of a worker in a global step."""
    epoch, step = divmod(step, plan.steps)
    start, stop = share.bounds(plan.rows(step))
    begin = step * plan.batch_size
    return order(plan, epoch)[begin + start : begin + stop]


def append(ledger, plan, share, first_step, stop, change=lambda step, ids: ids):
    """Records the steps `[first_step, stop)`, in one call for each epoch."""
    while first_step < stop:
        epoch = first_step // plan.steps
        steps = range(first_step, min(stop, (epoch + 1) * plan.steps))
        ids = [change(step, own_ids(plan, share, step)) for step in steps]
        ledger.append(epoch, first_step, [len(of_step) for of_step in ids], np.concatenate(ids))
        first_step = steps.stop


def train(folder, plan, run, workers, first_step, stops, *, examples, change=lambda worker, step, ids: ids):
    """A run of which worker w has recorded the steps `[first_step, stops[w])`."""
    for worker in range(workers):
        share = Share(worker, workers)
        with Ledger(folder, worker, workers, run, first_step, examples, plan.dropped) as ledger:
            append(ledger, plan, share, first_step, stops[worker], lambda step, ids, w=worker: change(w, step, ids))


@pytest.fixture
def two_epochs(tmp_path):
    """10 examples in batches of 4 on two workers, for two epochs."""
    train(tmp_path, EpochPlan(10, 4), 1, 2, 0, [6, 6], examples=10)
    return tmp_path


vectors = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300), max_size=50)


@some
@given(vectors, vectors)
@example([-(2**63), 2**63 - 1, 0], [])
@example([7] * 5, [2**62, 2**62 + 3, 2**62 + 1])
def test_packed_integers_come_back(one, other):
    unpacked = unpack(pack(one, other))
    assert [vector.tolist() for vector in unpacked] == [one, other]
    assert all(vector.dtype == np.int64 for vector in unpacked)


@pytest.mark.parametrize(
    ("ids", "bytes_an_id"),
    [
        (np.arange(10**6), 0.01),
        (np.random.default_rng(0).permutation(10**6), 2.6),
        (np.random.default_rng(0).integers(0, 2**63, 10**5), 8.01),
    ],
    ids=["in order", "shuffled", "fingerprints"],
)
def test_packed_ids_take_few_bytes(ids, bytes_an_id):
    assert len(pack(ids)) <= bytes_an_id * len(ids)


def test_each_example_once(two_epochs):
    report = read_report(two_epochs)
    assert report.exactly_once
    assert str(report).splitlines() == [
        " epoch  worker    steps        rows   seen once twice, more   missing",
        "     0     all        3          10          10           0         0",
        "             0        3           5           5           0",
        "             1        3           5           5           0",
        "     1     all        3          10          10           0         0",
        "             0        3           5           5           0",
        "             1        3           5           5           0",
        "",
        "Exactly once.",
    ]


def test_examples_twice_missing_and_foreign_are_named(tmp_path):
    def change(worker, step, ids):
        return np.array([11, 3]) if (worker, step) == (1, 1) else ids

    plan = EpochPlan(8, 4)
    train(tmp_path, plan, 1, 2, 0, [2, 2], examples=8, change=change)
    lost = sorted(set(own_ids(plan, Share(1, 2), 1).tolist()) - {3})
    report = read_report(tmp_path)
    assert not report.exactly_once
    assert report.faults == [
        "epoch 0: 1 example (id 3) seen twice or more",
        f"epoch 0: {len(lost)} examples (id {', '.join(map(str, lost))}) missing",
        "epoch 0: 1 example (id 11) seen that the data of 8 examples does not have",
    ]


def test_the_first_few_of_many_ids_are_named(tmp_path):
    train(tmp_path, EpochPlan(8, 8), 1, 1, 0, [1], examples=8, change=lambda w, s, ids: np.repeat(np.arange(8), 2))
    assert read_report(tmp_path).faults == ["epoch 0: 8 examples (id 0, 1, 2, 3, 4, ...) seen twice or more"]


def test_what_drop_remainder_drops_is_no_fault(tmp_path):
    plan = EpochPlan(10, 4, drop_remainder=True)
    train(tmp_path, plan, 1, 1, 0, [4], examples=10)
    report = read_report(tmp_path)
    assert report.exactly_once
    assert [epoch.missing.count for epoch in report.epochs] == [2, 2]
    assert "2 dropped on purpose" in str(report)


def test_more_missing_than_dropped_is_a_fault(tmp_path):
    plan = EpochPlan(10, 4, drop_remainder=True)
    train(tmp_path, plan, 1, 1, 0, [4], examples=10, change=lambda w, step, ids: ids[step == 0 :])
    (fault,) = read_report(tmp_path).faults
    assert fault.startswith("epoch 0: 3 examples") and fault.endswith("missing, 2 of them dropped on purpose")


def test_integers_of_numpy_are_taken(tmp_path):
    with Ledger(tmp_path, 0, 1, np.int64(1), np.int64(0), np.int64(3)) as ledger:
        ledger.append(np.int64(0), np.int64(0), np.array([2, 1]), np.arange(3, dtype=np.int32))
        ledger.end_epoch(np.int64(0), np.int64(2))
        ledger.flush()
    assert read_report(tmp_path).exactly_once


def test_an_epoch_that_goes_on_lacks_nothing_until_it_is_ended(tmp_path):
    plan = EpochPlan(10, 4)
    with Ledger(tmp_path, 0, 1, 1, 0, 10) as ledger:
        append(ledger, plan, Share(), 0, 2)
        assert read_report(tmp_path).exactly_once
        assert str(read_report(tmp_path)).splitlines()[1].endswith("2  not finished")
        ledger.end_epoch(0, 2)
    assert "2 examples" in read_report(tmp_path).faults[0]


def test_an_end_that_was_trained_again_ends_nothing(tmp_path):
    plan = EpochPlan(10, 4)
    with Ledger(tmp_path, 0, 1, 1, 0, 10) as ledger:
        append(ledger, plan, Share(), 0, 2)
        ledger.end_epoch(0, 2)
    train(tmp_path, plan, 2, 1, 1, [2], examples=10)
    assert not read_report(tmp_path).epochs[0].over


def test_steps_trained_again_count_for_the_run_that_trained_them_last(tmp_path):
    plan = EpochPlan(12, 4)
    train(tmp_path, plan, 1, 2, 0, [5, 4], examples=12, change=lambda w, step, ids: ids * (step < 3))
    train(tmp_path, plan, 2, 3, 3, [4, 4, 3], examples=12, change=lambda w, s, ids: ids * 0)
    train(tmp_path, plan, 3, 1, 3, [6], examples=12)
    report = read_report(tmp_path)
    assert report.exactly_once
    assert [(own.worker, own.rows) for own in report.epochs[1].workers] == [(0, 12)]


def test_without_a_number_of_examples_all_epochs_together_are_the_whole(tmp_path):
    plan, far = EpochPlan(10, 5), 2**62

    def change(worker, step, ids):
        return (ids[:-1] if step == 3 else ids) + far

    train(tmp_path, plan, 1, 1, 0, [6], examples=None, change=change)
    report = read_report(tmp_path)
    assert report.faults == [f"epoch 1: 1 example (id {order(plan, 1)[-1] + far}) missing"]
    assert "The number of examples is not known" in str(report)


def test_a_ledger_that_begins_in_an_epoch_does_not_ask_for_its_beginning(tmp_path):
    train(tmp_path, EpochPlan(12, 4), 1, 1, 1, [6], examples=12)
    report = read_report(tmp_path)
    assert report.exactly_once
    assert str(report).splitlines()[1].endswith("4  begun before the ledger")


def test_a_worker_whose_file_is_elsewhere_is_named(two_epochs):
    (two_epochs / "worker-00001.ledger").unlink()
    assert (
        "epoch 0: worker 1 has not recorded steps 0 to 2; the files of all workers belong into one folder"
        in read_report(two_epochs).faults
    )


def test_steps_that_no_worker_recorded_are_named(tmp_path):
    plan = EpochPlan(40, 4)
    train(tmp_path, plan, 1, 1, 0, [3], examples=None)
    train(tmp_path, plan, 2, 1, 5, [7], examples=None)
    (fault,) = read_report(tmp_path).faults
    assert "worker 0 has not recorded steps 3 to 4" in fault


def test_steps_lost_at_the_end_of_an_epoch_belong_to_it(tmp_path):
    plan = EpochPlan(12, 4)
    with Ledger(tmp_path, 0, 1, 1, 0, None) as ledger:
        append(ledger, plan, Share(), 0, 2)
        ledger.end_epoch(0, 3)
        append(ledger, plan, Share(), 3, 6)
    gaps = [fault for fault in read_report(tmp_path).faults if "not recorded" in fault]
    assert [gap.partition(";")[0] for gap in gaps] == ["epoch 0: worker 0 has not recorded step 2"]


def test_steps_lost_here_and_there_are_counted(tmp_path):
    plan = EpochPlan(12, 4)
    train(tmp_path, plan, 1, 1, 0, [3], examples=12)
    with Ledger(tmp_path, 0, 2, 2, 0, 12) as ledger:
        append(ledger, plan, Share(0, 2), 0, 4)
    with Ledger(tmp_path, 1, 2, 2, 0, 12) as ledger:
        append(ledger, plan, Share(1, 2), 1, 2)
        append(ledger, plan, Share(1, 2), 3, 4)
    faults = read_report(tmp_path).faults
    assert faults[1].startswith("epoch 0: worker 1 has not recorded 2 of the steps 0 to 2; the files of all workers")


def test_steps_lost_before_those_of_an_epoch_that_goes_on_are_named(tmp_path):
    plan = EpochPlan(40, 4)
    with Ledger(tmp_path, 0, 1, 1, 0, 40) as ledger:
        append(ledger, plan, Share(), 0, 10)
        append(ledger, plan, Share(), 12, 14)
    (fault,) = read_report(tmp_path).faults
    assert fault.startswith("epoch 1: worker 0 has not recorded steps 10 to 11")


def test_the_last_run_of_an_epoch_says_how_many_examples_it_has(tmp_path):
    with Ledger(tmp_path, 0, 1, 1, 0, 8) as ledger:
        ledger.append(0, 0, [4], np.arange(4))
    with Ledger(tmp_path, 0, 1, 2, 1, 7, dropped=1) as ledger:
        ledger.append(0, 1, [2], np.arange(4, 6))
    (epoch,) = read_report(tmp_path).epochs
    assert (epoch.examples, epoch.dropped, epoch.over, epoch.exactly_once) == (7, 1, True, True)


@pytest.mark.parametrize("lost", [1, 7, 20])
def test_a_torn_end_is_ignored_and_cut_by_the_next_run(two_epochs, lost):
    path = two_epochs / FIRST
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost])
    assert read_report(two_epochs).epochs[1].workers[0].worker == 1
    train(two_epochs, EpochPlan(10, 4), next_run(two_epochs), 2, 3, [6, 6], examples=10)
    assert read_report(two_epochs).exactly_once


def test_an_end_of_zeros_is_torn(two_epochs):
    path = two_epochs / FIRST
    path.write_bytes(path.read_bytes() + bytes(100))
    assert read_report(two_epochs).exactly_once


@pytest.mark.parametrize("place", [0, 4, 5, 20])
def test_a_damaged_middle_is_refused_with_its_place(two_epochs, place):
    path = two_epochs / FIRST
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{FIRST}: damaged at byte 0, with intact records behind"):
        read_report(two_epochs)
    with pytest.raises(DataError, match="damaged at byte 0"):
        Ledger(two_epochs, 0, 2, 2, 0, 10)
    assert path.read_bytes() == bytes(content)


def test_a_killed_worker_leaves_all_that_it_appended(tmp_path):
    code = (
        "import os, signal, sys\nimport numpy as np\nfrom tfdist.ledger import Ledger\n"
        "ledger = Ledger(sys.argv[1], 0, 1, 1, 0, 3)\n"
        "ledger.append(0, 0, [2, 1], np.arange(3))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=False, timeout=60)
    assert killed.returncode == -9
    assert read_report(tmp_path).epochs[0].once == 3


def test_runs_are_numbered_over_all_files(tmp_path):
    assert next_run(tmp_path / "none") == 1
    Ledger(tmp_path, 3, 4, 5, 0, 10).close()
    assert next_run(tmp_path) == 6


def test_a_number_of_an_earlier_run_is_refused(two_epochs):
    with pytest.raises(DataError, match=r"run 1 after run 1; .* Take next_run"):
        Ledger(two_epochs, 0, 2, 1, 6, 10)


def test_ledgers_of_two_trainings_in_one_folder_are_refused(two_epochs):
    Ledger(two_epochs, 0, 2, 2, 6, 10).close()
    Ledger(two_epochs, 1, 2, 2, 3, 10).close()
    with pytest.raises(DataError, match="two workers disagree about run 2"):
        read_report(two_epochs)


def test_rows_without_ids_are_refused(tmp_path):
    with Ledger(tmp_path, 0, 1, 1, 0, 10) as ledger, pytest.raises(DataError, match="3 ids for 4 rows"):
        ledger.append(0, 0, [2, 2], np.arange(3))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="worker-00000.ledger: File exists. The ledger needs a folder"):
        Ledger(tmp_path / "file", 0, 1, 1, 0, 10)


def run_tool(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tfdist.ledger", *arguments],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def test_the_tool_reads_the_ledger_of_a_workdir(tmp_path):
    train(tmp_path / "ledger", EpochPlan(4, 2), 1, 2, 0, [2, 2], examples=4)
    done = run_tool(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{read_report(tmp_path)}\n"


def test_the_tool_fails_where_not_exactly_once(tmp_path):
    train(tmp_path, EpochPlan(4, 2), 1, 1, 0, [2], examples=4, change=lambda w, s, ids: ids * 0)
    done = run_tool(tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == [
        "  epoch 0: 1 example (id 0) seen twice or more",
        "  epoch 0: 3 examples (id 1, 2, 3) missing",
    ]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: Ledger(path, 0, 1, 1, 0, 10).close()])
def test_the_tool_refuses_a_folder_without_a_recorded_step(tmp_path, make):
    make(tmp_path)
    done = run_tool(tmp_path)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith(f"tfdist.ledger: {tmp_path}: no ledger")


def test_the_tool_refuses_a_wrong_command_line():
    assert run_tool().returncode == 64


def test_it_starts_without_tensorflow():
    code = "import sys, tfdist.ledger.__main__\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True, timeout=60
    )
    assert not {"tensorflow", "keras"} & set(found.stdout.split())


@st.composite
def trainings(draw):
    """A plan and its runs, each killed somewhere and resumed at or before where its slowest or fastest worker was."""
    examples = draw(st.integers(1, 20))
    plan = EpochPlan(examples, draw(st.integers(1, examples)), draw(st.booleans()))
    runs, reached = [], 0
    for _ in range(draw(st.integers(1, 4))):
        workers = draw(st.integers(1, 4))
        first = draw(st.integers(max(0, reached - 4), reached))
        stops = draw(st.lists(st.integers(first, first + 2 * plan.steps), min_size=workers, max_size=workers))
        runs.append((workers, first, stops))
        reached = draw(st.sampled_from([min(stops), max(stops)]))
    wrong = draw(st.dictionaries(st.tuples(st.integers(1, 4), st.integers(0, 8)), st.integers(0, 25), max_size=2))
    return plan, runs, wrong


def changed(wrong, run):
    """Puts a wrong id in the first place of some steps of worker 0."""

    def change(worker, step, ids):
        if worker == 0 and len(ids) and (run, step) in wrong:
            return np.concatenate([[wrong[run, step]], ids[1:]])
        return ids

    return change


class Expected:
    """What the report should say of an epoch, counted step by step."""

    def __init__(self):
        self.counts, self.rows = collections.Counter(), collections.Counter()
        self.absent = []  # (worker, step)

    def count(self, plan, runs, wrong, step):
        run = max(run for run, (_, first, _) in enumerate(runs, 1) if first <= step)
        workers, _, stops = runs[run - 1]
        for worker in range(workers):
            if step < stops[worker]:
                ids = changed(wrong, run)(worker, step, own_ids(plan, Share(worker, workers), step)).tolist()
                self.counts.update(ids)
                self.rows[worker] += len(ids)
            else:
                self.absent.append((worker, step))


def count_plainly(plan, runs, wrong):
    epochs = collections.defaultdict(Expected)
    for step in range(max(stop for _, _, stops in runs for stop in stops)):
        epochs[step // plan.steps].count(plan, runs, wrong, step)
    return {epoch: expected for epoch, expected in epochs.items() if expected.rows}


@some
@given(trainings(), st.booleans())
def test_the_report_is_what_a_plain_count_gives(training, known):
    plan, runs, wrong = training
    epochs = count_plainly(plan, runs, wrong)
    with tempfile.TemporaryDirectory() as folder:
        for run, (workers, first, stops) in enumerate(runs, 1):
            assert next_run(folder) == run
            examples = plan.examples if known else None
            train(folder, plan, run, workers, first, stops, examples=examples, change=changed(wrong, run))
        if not epochs:
            with pytest.raises(DataError, match="has a step yet"):
                read_report(folder)
            return
        report = read_report(folder)
    everything = set(range(plan.examples)) if known else set().union(*(of.counts for of in epochs.values()))
    assert [tally.epoch for tally in report.epochs] == sorted(epochs)
    for tally in report.epochs:
        complete = known and sum(epochs[tally.epoch].rows.values()) >= plan.examples - plan.dropped
        over = complete or tally.epoch < max(epochs)
        assert tally.over == over
        compare(tally, epochs[tally.epoch], everything, plan.dropped, over, runs[-1][1])


def compare(tally, expected, everything, dropped, over, last_start):
    more = sorted(i for i in everything if expected.counts[i] > 1)
    missing = sorted(i for i in everything if not expected.counts[i])
    assert tally.once == sum(expected.counts[i] == 1 for i in everything)
    assert (tally.more.count, tally.more.first) == (len(more), tuple(more[:5]))
    assert (tally.missing.count, tally.missing.first) == (len(missing), tuple(missing[:5]))
    assert tally.foreign.count == len(set(expected.counts) - everything)
    assert {own.worker: own.rows for own in tally.workers} == dict(expected.rows)
    gaps = collections.Counter(worker for worker, step in expected.absent if over or step < last_start)
    found = collections.Counter()
    for gap in tally.gaps:
        found[gap.worker] += gap.steps
    assert found == gaps
    lacks = over and len(missing) > dropped
    assert tally.exactly_once == (not (more or lacks or tally.foreign.count or gaps))
