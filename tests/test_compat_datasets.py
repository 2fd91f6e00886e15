"""What `tfdist.compat` takes for granted of the graphs of `tf.data` and of the end of a process."""

import subprocess
import sys

import pytest
import tensorflow as tf

from tfdist.compat.dataset_differences import differences
from tfdist.compat.dataset_epochs import counts_iterations, fresh_copy
from tfdist.compat.dataset_files import batching_of, string_lists
from tfdist.compat.datasets import all_seeds, graph_of, operations, outline

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


def test_graphs_show_python_generators_and_all_seeds():
    generator = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec((), tf.int64))
    assert "GeneratorDataset" in operations(graph_of(generator.map(lambda i: i)))
    assert "GeneratorDataset" not in operations(graph_of(RANGE(4).map(lambda i: i)))
    inner = RANGE(2).flat_map(lambda i: RANGE(4).shuffle(4, seed=3)).shuffle(4, seed=5)
    assert [5 in seeds for seeds in all_seeds(graph_of(inner))].count(True) == 1
    assert [3 in seeds for seeds in all_seeds(graph_of(inner))].count(True) == 1


def test_outlines_are_equal_for_the_same_code_and_values():
    def make(worker=0, seed=1, scale=2):
        numbers = tf.data.TextLineDataset(["a", "b"]).shard(2, worker).map(lambda line: tf.strings.length(line) * scale)
        return outline(graph_of(numbers.shuffle(4, seed=seed).cache().interleave(lambda i: RANGE(9)).batch(2)))

    assert make() == make()
    assert all(make() != other for other in (make(worker=1), make(seed=2), make(scale=3)))


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
