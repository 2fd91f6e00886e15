"""Who reads what of a `tf.data.Dataset`: dealt files, policies, functions of the input context, generators."""

import ast
import itertools
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given
from hypothesis import strategies as st

from tfdist.batching import Share
from tfdist.data import from_dataset
from tfdist.data.streams.plan import plan_files
from tfdist.errors import DataError

RANGE = tf.data.Dataset.range
POLICY = tf.data.experimental.AutoShardPolicy


def asking_for(policy, dataset):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def write_lines(folder, *counts):
    """Files of so many lines each, numbered on from one file to the next; a line has four bytes."""
    numbers = iter(range(1000))
    files = [folder / f"part-{i}.txt" for i in range(len(counts))]
    for file, count in zip(files, counts):
        file.write_text("".join(f"{number:03d}\n" for number in itertools.islice(numbers, count)))
    return [str(file) for file in files]


def numbers_in(files, batch=6):
    lines = files if isinstance(files, tf.data.Dataset) else tf.data.TextLineDataset(files)
    return asking_for(POLICY.FILE, lines.map(lambda line: tf.strings.to_number(line, tf.int64)).batch(batch))


def parts_of(data, workers, **where):
    """For each worker its `(rows, ids, batch)` of every step."""
    return [list(data.worker_batches(None, Share(worker, workers), **where)) for worker in range(workers)]


def read_by(data, workers, **where):
    return [[batch.numpy().tolist() for _, _, batch in part] for part in parts_of(data, workers, **where)]


def flat(nested):
    return [number for part in nested for batch in part for number in batch]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40), st.integers(1, 8), st.integers(1, 4096))
def test_files_are_dealt_once_and_rows_by_bytes(sizes, workers, batch):
    names = [f"file-{i}" for i in range(len(sizes))]
    if len(sizes) < workers:
        with pytest.raises(DataError, match=f"{len(sizes)} file"):
            plan_files(names, sizes, workers, batch)
        return
    try:
        plan = plan_files(names, sizes, workers, batch)
    except DataError:
        assume(False)  # too uneven
    assert sorted(itertools.chain(*plan.files)) == list(range(len(sizes)))
    assert sum(plan.rows) == batch
    loads = [sum(sizes[i] for i in own) for own in plan.files]
    assert all(abs(rows - batch * load / sum(sizes)) < 1 for rows, load in zip(plan.rows, loads))
    assert max(loads) - min(loads) <= max(sizes)
    back_to_front = plan_files(names[::-1], sizes[::-1], workers, batch)
    assert [{plan.names[i] for i in own} for own in plan.files] == [
        {back_to_front.names[i] for i in own} for own in back_to_front.files
    ]


def test_a_plan_of_files_says_who_reads_what():
    plan = plan_files(["a", "b", "c"], [4000, 3000, 2000], 2, 16)
    assert plan.files == ((0,), (1, 2))
    assert "worker 0 1 file(s) with 4,000 bytes and 7 row(s); worker 1 2 file(s) with 5,000 bytes and 9" in str(plan)
    assert "own of 3 files" in str(plan) and "depend on the number of workers" in str(plan)


@pytest.mark.parametrize(("workers", "rows"), [(2, [3, 3]), (3, [3, 2, 1])])
def test_three_files_train_whole_on_any_workers(tmp_path, workers, rows, caplog):
    data = from_dataset(numbers_in(write_lines(tmp_path, 12, 5, 7)))
    with caplog.at_level(logging.INFO, "tfdist"):
        parts = parts_of(data, workers)
    assert data.shares_rows and data.steps_per_epoch() is None
    assert sorted(flat(read_by(data, workers))) == list(range(24))
    assert [int(part[0][0]) for part in parts] == rows
    assert all(int(own) == len(ids) == len(batch) for part in parts for own, ids, batch in part)
    steps = {len(part) for part in parts}
    assert max(steps) - min(steps) <= 1
    assert sum("Policy FILE: each worker reads its own of 3 files" in text for text in caplog.messages) == workers


def test_one_worker_reads_all_files_in_order(tmp_path):
    data = from_dataset(numbers_in(write_lines(tmp_path, 5, 4)))
    assert read_by(data, 1) == [[[0, 1, 2, 3, 4, 5], [6, 7, 8]]]


def test_listed_interleaved_and_shuffled_files_draw_other_orders_by_epoch(tmp_path):
    write_lines(tmp_path, 6, 6, 6, 6)
    files = tf.data.Dataset.list_files(f"{tmp_path}/*.txt", seed=1)
    data = from_dataset(
        numbers_in(files.interleave(tf.data.TextLineDataset, num_parallel_calls=2).shuffle(9, seed=2)).prefetch(1)
    )
    epochs = [read_by(data, 2, first_epoch=epoch) for epoch in range(2)]
    assert sorted(flat(epochs[0])) == sorted(flat(epochs[1])) == list(range(24))
    assert epochs[0] != epochs[1]
    assert read_by(data, 2, first_epoch=1, first_step=2) == [part[2:] for part in epochs[1]]


def test_what_is_sliced_beside_the_files_goes_with_them(tmp_path):
    files = write_lines(tmp_path, 1, 1, 1, 1)
    labelled = tf.data.Dataset.from_tensor_slices((files, files, np.arange(4)))
    pairs = labelled.map(lambda file, _, label: (tf.strings.to_number(tf.io.read_file(file), tf.int64), label))
    data = from_dataset(asking_for(POLICY.FILE, pairs.padded_batch(2)))
    seen = [step for part in parts_of(data, 2) for step in part]
    assert sorted(flat([[x.numpy()] for _, _, (x, _) in seen])) == [0, 1, 2, 3]
    assert all(x.numpy().tolist() == y.numpy().tolist() for _, _, (x, y) in seen)


def test_what_was_cached_of_all_files_is_not_taken_for_a_workers_own(tmp_path):
    dataset = numbers_in(tf.data.TextLineDataset(write_lines(tmp_path, 6, 6)).cache())
    assert len(list(dataset)) == 2
    data = from_dataset(dataset)
    assert sorted(flat(read_by(data, 2))) == sorted(flat(read_by(data, 2, first_epoch=1))) == list(range(12))


def test_workers_that_see_other_files_differ(tmp_path):
    first = from_dataset(numbers_in(write_lines(tmp_path, 4, 4))).identity()
    assert first == from_dataset(numbers_in(write_lines(tmp_path, 4, 4)[::-1])).identity()
    assert first != from_dataset(numbers_in(write_lines(tmp_path, 4, 4), batch=5)).identity()
    assert first != from_dataset(numbers_in(write_lines(tmp_path, 4, 5))).identity()


def test_what_takes_each_element_by_itself_is_read_by_files(tmp_path):
    files = tf.data.Dataset.from_tensor_slices(write_lines(tmp_path, 4, 4)).map(tf.identity, 2)
    lines = files.flat_map(lambda file: tf.data.TextLineDataset(file).take(3)).filter(lambda line: line != "001")
    data = from_dataset(numbers_in(lines.batch(4).unbatch().repeat(2).shuffle(3, seed=1), batch=4))
    assert sorted(flat(read_by(data, 2))) == sorted([0, 2, 4, 5, 6] * 2)


def test_data_sets_with_other_contents_differ_unless_they_are_said_to_be_the_same():
    def identity(worker, **kwargs):
        return from_dataset(RANGE(16).shard(2, worker).batch(8), **kwargs).identity()

    assert identity(0) == identity(0) != identity(1)
    assert identity(0, same_on_every_worker=True) == identity(1, same_on_every_worker=True)
    assert "from_dataset(dataset, same_on_every_worker=True)" in str(identity(0))


CORES = """
import tensorflow as tf
from tfdist.data import from_dataset
data = [tf.data.Dataset.range(4).interleave(lambda i: tf.data.Dataset.range(i, i + 3), **kwargs).batch(12)
        for kwargs in ({}, {"cycle_length": 3, "num_parallel_calls": 2})]
print([(next(iter(one)).numpy().tolist(), from_dataset(one).identity()) for one in data])
"""


@pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to choose")
def test_an_interleave_that_goes_by_cores_differs_between_machines():
    def seen(*cores):
        limited = f"import os; os.sched_setaffinity(0, {cores})\n{CORES}"
        done = subprocess.run([sys.executable, "-c", limited], check=True, capture_output=True, text=True, timeout=120)
        return ast.literal_eval(done.stdout)

    first, second = sorted(os.sched_getaffinity(0))[:2]
    one, two = seen(first), seen(first, second)
    assert one[0][0] != two[0][0] and one[0][1] != two[0][1]
    assert one[1] == two[1]


def two_files(folder):
    return tf.data.TextLineDataset(write_lines(folder, 8, 8))


REFUSED_FILES = {
    "fewer files": (lambda folder: numbers_in(write_lines(folder, 8)), r"1 file\(s\) for 2 workers"),
    "uneven": (lambda folder: numbers_in(write_lines(folder, 99, 1)), "Worker 1 of 2 has 4 of 400 bytes.*6 rows"),
    "no files": (lambda folder: RANGE(8).batch(2), "0 lists of files"),
    "two lists": (
        lambda folder: tf.data.Dataset.zip(two_files(folder), two_files(folder)).batch(2),
        "2 lists of files",
    ),
    "a list of words": (lambda folder: tf.data.Dataset.from_tensor_slices(["a", "b"]).batch(2), "0 lists of files"),
    "lost file": (
        lambda folder: tf.data.TextLineDataset([*write_lines(folder, 4), str(folder / "gone")]).batch(2),
        "gone: the data set names this file",
    ),
    "take": (lambda folder: two_files(folder).take(3).batch(2), "TakeDataset before the batches"),
    "shard": (lambda folder: two_files(folder).shard(2, 0).batch(2), "ShardDataset before the batches"),
    "scan": (
        lambda folder: two_files(folder).scan(np.int64(0), lambda count, line: (count + 1, line)).batch(2),
        "ScanDataset before the batches",
    ),
    "numbered": (lambda folder: two_files(folder).enumerate().map(lambda i, _: i).batch(2), "RangeDataset"),
    "until": (lambda folder: two_files(folder).take_while(lambda line: line != "004").batch(2), "TakeWhileDataset"),
    "unique": (lambda folder: two_files(folder).unique().batch(2), "UniqueDataset before the batches"),
    "windows": (
        lambda folder: two_files(folder).window(3).flat_map(lambda lines: lines.batch(3)).unbatch().batch(2),
        "WindowDataset before the batches",
    ),
    "groups": (
        lambda folder: (
            two_files(folder)
            .group_by_window(lambda _: np.int64(0), lambda _, lines: lines.take(2), window_size=3)
            .batch(2)
        ),
        "GroupByWindowDataset before the batches",
    ),
    "reduced": (
        lambda folder: (
            two_files(folder)
            .apply(
                tf.data.experimental.group_by_reducer(
                    lambda _: np.int64(0),
                    tf.data.experimental.Reducer(
                        lambda _: np.int64(0), lambda count, _: count + 1, lambda count: count
                    ),
                )
            )
            .batch(2)
        ),
        "GroupByReducerDataset before the batches",
    ),
    "dropped before": (
        lambda folder: two_files(folder).batch(3, drop_remainder=True).unbatch().batch(2),
        "BatchDatasetV2 before the batches",
    ),
    "batches of batches": (lambda folder: two_files(folder).batch(2).batch(2), "BatchDatasetV2 before the batches"),
    "snapshot": (lambda folder: two_files(folder).snapshot(str(folder / "s")).batch(2), "beside the files"),
    "drop": (lambda folder: two_files(folder).batch(2, drop_remainder=True), "drop_remainder=True"),
    "drop in parallel": (
        lambda folder: two_files(folder).batch(2, drop_remainder=True, num_parallel_calls=2),
        "drop_remainder=True",
    ),
    "drop padded": (lambda folder: two_files(folder).padded_batch(2, drop_remainder=True), "drop_remainder=True"),
    "rebatched": (lambda folder: two_files(folder).batch(4).rebatch(2), "come out of RebatchDatasetV2"),
    "beside": (
        lambda folder: tf.data.Dataset.zip(two_files(folder).batch(8).unbatch(), RANGE(16)).batch(2),
        "beside the files the data set reads RangeDataset",
    ),
    "after": (
        lambda folder: two_files(folder).concatenate(RANGE(9).map(tf.strings.as_string)).batch(2),
        "RangeDataset",
    ),
    "cache": (lambda folder: two_files(folder).cache(str(folder / "cache")).batch(2), r"cache\(filename\)"),
    "batches inside": (
        lambda folder: tf.data.Dataset.from_tensor_slices(write_lines(folder, 8, 8)).flat_map(
            lambda file: tf.data.TextLineDataset(file).batch(2)
        ),
        "come out of FlatMapDataset",
    ),
}


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_a_file_policy_that_cannot_work_is_refused(name, tmp_path):
    make, message = REFUSED_FILES[name]
    data = from_dataset(asking_for(POLICY.FILE, make(tmp_path)))
    with pytest.raises(DataError, match=message):
        data.worker_batches(None, Share(0, 2))


@pytest.mark.parametrize(
    ("policy", "remedy"), [(POLICY.OFF, "Hand over a function"), (POLICY.HINT, "context.input_pipeline_id")]
)
def test_policies_that_split_blindly_are_refused(policy, remedy):
    data = from_dataset(asking_for(policy, RANGE(8).batch(4)))
    with pytest.raises(DataError, match=remedy):
        data.worker_batches(None, Share(0, 2))
    assert flat(read_by(data, 1)) == list(range(8))
    vowed = from_dataset(asking_for(policy, RANGE(8).batch(4)), same_on_every_worker=True)
    assert sorted(flat(read_by(vowed, 2))) == list(range(8))


def test_the_plan_of_a_shared_data_set_names_policy_and_cost(caplog):
    with caplog.at_level(logging.INFO, "tfdist"):
        read_by(from_dataset(asking_for(POLICY.DATA, RANGE(8).batch(4))), 3)
        read_by(from_dataset(asking_for(POLICY.FILE, RANGE(8).batch(4)), same_on_every_worker=True), 2)
    first, second = caplog.messages
    assert first.startswith("Policy DATA: every worker reads all") and "3 times the reading" in first
    assert second.startswith("same_on_every_worker=True: every worker reads all")


def test_data_sets_with_other_seeds_differ():
    def identity(inner, outer):
        inside = RANGE(2).flat_map(lambda i: RANGE(4).shuffle(4, seed=inner))
        return from_dataset(inside.shuffle(4, seed=outer).batch(4)).identity()

    assert identity(1, 2) == identity(1, 2)
    assert len({str(identity(*seeds)) for seeds in ((1, 2), (1, 3), (2, 2))}) == 3


def own_numbers(context):
    return RANGE(10).shard(context.num_input_pipelines, context.input_pipeline_id).shuffle(9, seed=1).batch(2)


def test_a_function_of_the_input_context_gives_each_worker_its_own():
    data = from_dataset(own_numbers)
    assert data.shares_rows and data.element_spec == tf.TensorSpec((None,), tf.int64)
    read = read_by(data, 3)
    assert sorted(flat(read)) == list(range(10))
    assert [sorted(flat([part])) for part in read] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert read_by(data, 3, first_epoch=1) != read
    assert flat(read_by(data, 1)) == list(own_numbers(tf.distribute.InputContext()).unbatch().as_numpy_iterator())


def branched(i):
    return tf.cond(i > 4, lambda: i, lambda: -i)


def test_a_function_knows_all_replicas():
    seen = []

    def note(context):
        seen.append((context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync))
        return own_numbers(context)

    from_dataset(note).worker_batches(None, Share(1, 2, 4))
    assert (2, 1, 8) in seen


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda context: RANGE(10).map(lambda i: i + 1).shuffle(4, seed=1).batch(2), "same data set for the workers 0"),
        (lambda context: RANGE(10).shuffle(4).batch(2), "same data set for the workers 0"),
        (lambda context: RANGE(10).map(branched).batch(2), "same data set for the workers 0"),
        (lambda context: [1, 2], "returned a list"),
        (lambda context: RANGE(context.input_pipeline_id + 1), "not batches"),
    ],
)
def test_a_function_that_cannot_share_is_refused(function, message):
    with pytest.raises(DataError, match=message):
        from_dataset(function).worker_batches(None, Share(0, 2))
