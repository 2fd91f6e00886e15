"""What `tfdist.compat` takes for granted of the graphs of `tf.data` and of the end of a process."""

import json
import subprocess
import sys

import lookalikes
import pytest
import tensorflow as tf

from tfdist.compat.dataset_differences import differences
from tfdist.compat.dataset_digest import digest_of
from tfdist.compat.dataset_epochs import counts_iterations, fresh_copy
from tfdist.compat.dataset_files import batching_of, string_lists
from tfdist.compat.datasets import graph_of, operations

RANGE = tf.data.Dataset.range


def nodes(dataset):
    return {node.op: node for node in graph_of(dataset).node}


def test_graphs_name_their_operations_and_seeds_as_expected():
    shuffle = nodes(RANGE(4).shuffle(4, seed=7))["ShuffleDatasetV3"]
    assert len(shuffle.input) == 5
    assert shuffle.attr["reshuffle_each_iteration"].b
    assert (
        not nodes(RANGE(4).shuffle(4, seed=7, reshuffle_each_iteration=False))["ShuffleDatasetV3"]
        .attr["reshuffle_each_iteration"]
        .b
    )
    assert any(op.startswith("RandomDataset") for op in nodes(tf.data.Dataset.random(4)))
    interleave = RANGE(4).interleave(RANGE, num_parallel_calls=2, deterministic=False)
    assert nodes(interleave)["ParallelInterleaveDatasetV4"].attr["deterministic"].s == b"false"
    mapped = RANGE(4).map(lambda i: i, num_parallel_calls=2)
    assert nodes(mapped)["ParallelMapDatasetV2"].attr["deterministic"].s == b"default"
    names = set(nodes(RANGE(4).filter(lambda i: i > 2).cache().repeat(2)))
    assert {"FilterDataset", "CacheDatasetV2", "RepeatDataset"} <= names


def test_a_shuffle_with_a_global_seed_has_seeds():
    tf.random.set_seed(1)
    try:
        seeded = RANGE(4).shuffle(4)
    finally:
        tf.random.set_seed(None)
    assert not differences(graph_of(seeded), tf.data.Options())
    assert differences(graph_of(RANGE(4).shuffle(4)), tf.data.Options())


@pytest.mark.parametrize("seed", [0, 7, -7, 2**40 + 3])
@pytest.mark.parametrize("outer", [False, True])
def test_the_order_of_an_epoch_is_the_one_that_tensorflow_draws(seed, outer):
    dataset = RANGE(12).shuffle(12, seed=seed)
    if outer:
        dataset = dataset.flat_map(lambda i: RANGE(i, i + 2)).shuffle(5, seed=seed + 1)
    graph = graph_of(dataset)
    assert counts_iterations(graph)
    epochs = [list(dataset.as_numpy_iterator()) for _ in range(4)]
    for epoch in (3, 0, 2):
        assert list(fresh_copy(graph, dataset.element_spec, epoch).as_numpy_iterator()) == epochs[epoch]


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize(
    ("batch", "node"),
    [
        (lambda data, drops: data.batch(4, drop_remainder=drops), "BatchDatasetV2"),
        (lambda data, drops: data.batch(4, drop_remainder=drops, num_parallel_calls=2), "ParallelBatchDataset"),
        (lambda data, drops: data.padded_batch(4, drop_remainder=drops), "PaddedBatchDatasetV2"),
    ],
)
def test_graphs_say_where_files_and_batches_are(batch, node, drops, tmp_path):
    names = [str(tmp_path / name) for name in ("a", "ü")]
    graph = graph_of(batch(tf.data.TextLineDataset(names), drops).map(tf.identity, 2).cache().repeat(2).prefetch(1))
    ((reader, found),) = string_lists(graph)
    assert found == names
    batching = batching_of(graph)
    assert (batching.rows, batching.drops) == (4, drops)
    by_name = {node.name: node.op for node in graph.node}
    assert (by_name[reader], by_name[batching.node]) == ("TensorSliceDataset", node)


def test_graphs_show_python_generators():
    generator = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec((), tf.int64))
    assert "GeneratorDataset" in operations(graph_of(generator.map(lambda i: i)))
    assert "GeneratorDataset" not in operations(graph_of(RANGE(4).map(lambda i: i)))


def test_digests_see_code_and_values_and_nothing_that_a_process_numbers():
    command = [sys.executable, lookalikes.__file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        lookalikes.data_sets(), lookalikes.data_sets()  # traced before
        here = lookalikes.digests()
        assert other.wait(timeout=120) == 0
        assert json.load(other.stdout) == here
    assert len(set(here.values())) == len(here) == len(lookalikes.data_sets())


def scaled(scale):
    return RANGE(9).interleave(lambda i: RANGE(2).map(lambda j: i + j * scale))


UNLIKE = {
    "shard": lambda worker: RANGE(9).shard(2, worker),
    "files": lambda worker: tf.data.TextLineDataset([["a", "b"], ["b", "a"]][worker]),
    "rows": lambda worker: tf.data.Dataset.from_tensor_slices([[1, 2, 3], [1, 3, 2]][worker]),
    "captured": lambda worker: scaled(tf.constant(worker, tf.int64)),
    "written": scaled,
    "outer seed": lambda worker: RANGE(9).shuffle(9, seed=worker),
    "inner seed": lambda worker: RANGE(2).flat_map(lambda i: RANGE(9).shuffle(9, seed=worker)),
    "order": lambda worker: (RANGE(9).take(5).shuffle(9, seed=1), RANGE(9).shuffle(9, seed=1).take(5))[worker],
    "attribute": lambda worker: RANGE(9).shuffle(9, seed=1, reshuffle_each_iteration=bool(worker)),
    "swapped": lambda worker: tf.data.Dataset.zip(*[RANGE(9), RANGE(1, 10)][:: (1, -1)[worker]]),
    "words": lambda worker: (
        RANGE(9).map(tf.strings.as_string).map(lookalikes.table_of(("a", "b")[:: (1, -1)[worker]]).lookup)
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_digests_tell_data_sets_apart(name):
    first, again, other = (digest_of(graph_of(UNLIKE[name](worker))) for worker in (0, 0, 1))
    assert first == again != other


def test_digests_do_not_see_how_fast_it_goes():
    def made(threads):
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        read = RANGE(9).interleave(RANGE, cycle_length=3, num_parallel_calls=threads).map(lambda i: i, threads)
        batches = read.filter(lambda i: i > 1).batch(2, num_parallel_calls=threads).prefetch(threads)
        return digest_of(graph_of(batches.with_options(options)))

    assert made(2) == made(3)


def test_within_a_process_digests_tell_what_variables_hold():
    def made(value, **kwargs):
        variable = tf.Variable(value, dtype=tf.int64)
        return digest_of(graph_of(RANGE(9).map(lambda i: i + variable)), **kwargs)

    assert made(1) == made(2)
    assert made(1, in_one_process=True) == made(1, in_one_process=True) != made(2, in_one_process=True)


def test_copies_do_not_move_each_others_order():
    dataset = RANGE(12).shuffle(12, seed=1)
    graph = graph_of(dataset)
    first, second = (fresh_copy(graph, dataset.element_spec) for _ in range(2))
    assert list(first.as_numpy_iterator()) == list(second.as_numpy_iterator())


END = """
import numpy as np
from tfdist.batching import Share
from tfdist.data import from_tfds
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i):
        sum(range(20000))
        return np.zeros(10)
iterator = iter(from_tfds(Slow(), as_supervised=False).worker_batches(50, Share(), repeat=True))
next(iterator)
raise SystemExit(3)
"""


def test_a_process_ends_while_python_code_reads_ahead():
    ended = subprocess.run([sys.executable, "-c", END], check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr
