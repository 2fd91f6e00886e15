"""The user's own `tf.data.Dataset`: the same stream on every worker, or a refusal that says why."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tfdist.batching import Share
from tfdist.data import from_dataset
from tfdist.errors import BatchError, DataError

RANGE = tf.data.Dataset.range


def shuffled_files(count=4):
    """Like the usual chain over files: shuffled names, interleaved records, shuffled records. Its size is unknown."""
    names = RANGE(count).shuffle(count, seed=3)
    return names.interleave(lambda i: RANGE(i * 10, i * 10 + 3), num_parallel_calls=2).shuffle(20, seed=4).batch(5)


def read(data, share=None, **where):
    return [batch.numpy().tolist() for _, _, batch in data.worker_batches(None, share or Share(), **where)]


def read_by(data, workers, **where):
    """The global batches, put together from what the workers read."""
    parts = [data.worker_batches(None, Share(worker, workers), **where) for worker in range(workers)]
    together = []
    for step in zip(*parts, strict=True):
        bounds = [Share(worker, workers).bounds(int(rows)) for worker, (rows, _, _) in enumerate(step)]
        rows = [ids.numpy().tolist()[: stop - start] for (start, stop), (_, _, ids) in zip(bounds, step)]
        together.append([i for part in rows for i in part])
    return together


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
def test_workers_share_each_global_batch(workers):
    dataset = RANGE(13).shuffle(13, seed=1).batch(5)
    once = [ids.tolist() for ids in dataset.as_numpy_iterator()]
    assert read_by(from_dataset(dataset), workers) == once
    assert sorted(i for batch in once for i in batch) == list(range(13))


def test_elements_keep_their_structure():
    x = {"a": np.arange(6), "b": np.array(list("abcdef"))}
    data = from_dataset(tf.data.Dataset.from_tensor_slices((x, np.arange(6))).batch(4, drop_remainder=True))
    ((rows, own, (inputs, y)),) = data.worker_batches(None, Share(1, 2))
    assert int(rows) == 4
    assert own.numpy().tolist() == [0, 1]
    assert y.numpy().tolist() == [2, 3]
    assert inputs["b"].numpy().tolist() == [b"c", b"d"]
    assert data.element_spec[1] == tf.TensorSpec((None,), tf.int64)
    assert data.steps_per_epoch() == 1
    assert data.examples is None


def test_a_look_at_the_data_set_on_one_worker_alone_changes_nothing():
    dataset = RANGE(12).shuffle(12, seed=1).batch(4)
    before = read(from_dataset(dataset), repeat=False)
    next(iter(dataset))
    assert read(from_dataset(dataset), repeat=False) == before


@pytest.mark.parametrize("make", [lambda: RANGE(12).shuffle(12, seed=1).batch(5), shuffled_files])
def test_epochs_are_those_of_repeat_wherever_they_start(make):
    stock = [ids.tolist() for ids in make().repeat(3).as_numpy_iterator()]
    data = from_dataset(make())
    assert [batch for epoch in range(3) for batch in read(data, first_epoch=epoch)] == stock
    assert stock[:3] != stock[3:6]
    steps = data.steps_per_epoch()
    assert steps in (3, None)
    assert read(data, first_epoch=1, first_step=2) == stock[5:6]
    if steps:
        assert read(data, first_step=5) == stock[5:6]
        tail = [
            ids.numpy().tolist() for _, _, ids in data.worker_batches(None, Share(), first_step=4, repeat=True).take(5)
        ]
        assert tail == stock[4:]


def test_an_order_held_by_a_cache_stays_in_every_epoch():
    first = read(from_dataset(RANGE(9).shuffle(9, seed=1).cache().batch(9)))
    assert read(from_dataset(RANGE(9).shuffle(9, seed=1).cache().batch(9)), first_epoch=2) == first


def test_an_endless_data_set_is_read_as_it_is():
    data = from_dataset(RANGE(4).shuffle(4, seed=1).repeat().batch(4))
    assert data.steps_per_epoch() is None
    batches = data.worker_batches(None, Share(0, 2), first_step=1).take(5)
    assert len({tuple(ids.numpy().tolist()) for _, _, ids in batches}) > 1


def test_the_cost_of_sharing_is_said_once(caplog):
    data = from_dataset(RANGE(4).batch(2))
    with caplog.at_level(logging.INFO, "tfdist"):
        read(data)
        assert not caplog.messages
        read(data, Share(0, 2))
        read(data, Share(0, 2), first_step=1)
    assert [("reads all" in message, "up to batch 1" in message) for message in caplog.messages] == [
        (True, False),
        (False, True),
    ]


def loose(dataset):
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


def with_noise(i):
    return i + tf.random.uniform([], maxval=2, dtype=tf.int64)


def random_count(*_):
    return tf.random.uniform([], 1, 3, tf.int64)


def python_count(*_):
    return tf.ensure_shape(tf.numpy_function(lambda: np.int64(2), [], tf.int64), [])


def chosen(selector):
    return tf.data.Dataset.choose_from_datasets([RANGE(4), RANGE(9)], selector)


def filtered_by(generator):
    return RANGE(9).filter(lambda i: generator.uniform([]) < 2.0)


def distributed():
    return tf.distribute.OneDeviceStrategy("CPU:0").experimental_distribute_dataset(RANGE(4).batch(2))


DIFFERING = {
    "shuffle": (lambda: RANGE(9).shuffle(9), "give each a seed"),
    "shuffle inside": (lambda: RANGE(3).interleave(lambda i: RANGE(9).shuffle(9)), "give each a seed"),
    "random": (lambda: tf.data.Dataset.random().take(4), "give each a seed"),
    "sample": (lambda: tf.data.Dataset.sample_from_datasets([RANGE(3), RANGE(3)], [0.5, 0.5]), "give each a seed"),
    "map": (lambda: RANGE(9).map(lambda i: i, num_parallel_calls=2, deterministic=False), "leave it at True"),
    "interleave": (
        lambda: RANGE(3).interleave(RANGE, num_parallel_calls=2, deterministic=False),
        "leave it at True",
    ),
    "options": (lambda: loose(RANGE(9).map(lambda i: i, num_parallel_calls=2)), "leave it at True"),
    "filter": (lambda: RANGE(9).filter(lambda i: tf.random.uniform([]) > 0.5), "stateless_uniform"),
    "filter below": (lambda: RANGE(9).map(with_noise).filter(lambda i: i > 3), "stateless_uniform"),
    "filter by a generator": (lambda: filtered_by(tf.random.Generator.from_seed(1)), "stateless_uniform"),
    "take inside": (lambda: RANGE(3).flat_map(lambda i: RANGE(9).take(random_count())), "stateless_uniform"),
    "skip inside": (lambda: RANGE(3).interleave(lambda i: RANGE(9).skip(random_count())), "stateless_uniform"),
    "repeat inside": (lambda: RANGE(3).flat_map(lambda i: RANGE(2).repeat(random_count())), "stateless_uniform"),
    "shard inside": (
        lambda: RANGE(3).interleave(lambda i: RANGE(9).shard(4, random_count()), num_parallel_calls=2),
        "stateless_uniform",
    ),
    "range inside": (lambda: RANGE(3).flat_map(lambda i: RANGE(random_count())), "stateless_uniform"),
    "count from before": (lambda: RANGE(3).map(random_count).flat_map(RANGE), "stateless_uniform"),
    "count from before, within": (
        lambda: RANGE(3).map(random_count).flat_map(lambda n: RANGE(2).interleave(lambda j: RANGE(9).take(n + j))),
        "stateless_uniform",
    ),
    "filter by what was before": (
        lambda: RANGE(3).map(with_noise).flat_map(lambda n: RANGE(9).filter(lambda i: i > n)),
        "stateless_uniform",
    ),
    "choice": (lambda: chosen(RANGE(9).map(lambda i: random_count() - 1)), "stateless_uniform"),
    "choice in Python": (lambda: chosen(RANGE(9).map(lambda i: python_count() - 1)), "stateful=False"),
    "filter in Python": (lambda: RANGE(9).filter(lambda i: python_count() > 1), "stateful=False"),
    "filter in eager Python": (
        lambda: RANGE(9).filter(lambda i: tf.ensure_shape(tf.py_function(lambda: True, [], tf.bool), [])),
        "stateful=False",
    ),
    "take_while in Python": (lambda: RANGE(9).take_while(lambda i: python_count() > 1), "stateful=False"),
    "take in Python": (lambda: RANGE(3).flat_map(lambda i: RANGE(9).take(python_count())), "stateful=False"),
    "count from Python before": (lambda: RANGE(3).map(python_count).flat_map(RANGE), "stateful=False"),
    "rows": (lambda: RANGE(9).batch(3).map(tf.random.shuffle).unbatch(), "stateless_shuffle"),
}


@pytest.mark.parametrize("name", DIFFERING)
def test_what_may_differ_between_workers_is_refused(name):
    make, remedy = DIFFERING[name]
    dataset = make().batch(2)
    with pytest.raises(DataError, match=remedy):
        from_dataset(dataset).worker_batches(None, Share(0, 2))
    assert read(from_dataset(dataset))  # one worker may
    assert read(from_dataset(dataset, same_on_every_worker=True), Share(0, 2))


def noisy_pairs():
    return RANGE(9).map(lambda i: (i, with_noise(i)))


def capturing(count):
    return noisy_pairs().flat_map(lambda i, noise: tf.data.Dataset.from_tensors(noise).repeat(count))


SAME = {
    "parallel": lambda: RANGE(9).interleave(RANGE, num_parallel_calls=2).map(lambda i: i, 2),
    "noise in values": lambda: RANGE(9).filter(lambda i: i > 3).map(with_noise),
    "noise inside": lambda: RANGE(3).interleave(lambda i: RANGE(i, 9).take(2).map(with_noise).repeat(2)),
    "noise beside a count": lambda: noisy_pairs().flat_map(lambda i, noise: tf.data.Dataset.from_tensors(noise)),
    "noise before a captured count": lambda: capturing(tf.constant(2, tf.int64)),
    "values of Python": lambda: RANGE(9).map(lambda i: i + python_count()).filter(lambda i: i > 3),
    "pure Python": lambda: RANGE(9).filter(
        lambda i: tf.ensure_shape(tf.numpy_function(lambda i: i > 3, [i], tf.bool, stateful=False), [])
    ),
    "chosen": lambda: chosen(RANGE(2).repeat()).map(with_noise),
    "chosen from noise": lambda: tf.data.Dataset.choose_from_datasets([RANGE(4).map(with_noise)] * 2, RANGE(2)),
    "sample": lambda: tf.data.Dataset.sample_from_datasets([RANGE(3), RANGE(3)], [0.5, 0.5], seed=1),
    "seed 0": lambda: RANGE(9).shuffle(9, seed=0),
    "loose without effect": lambda: loose(RANGE(9)),
}


@pytest.mark.parametrize("name", SAME)
def test_what_cannot_differ_is_shared(name):
    assert read(from_dataset(SAME[name]().batch(2)), Share(0, 2))


def test_a_lookup_table_survives_the_copy():
    values = tf.lookup.KeyValueTensorInitializer(tf.range(4, dtype=tf.int64), tf.range(4, dtype=tf.int64) * 10)
    table = tf.lookup.StaticHashTable(values, -1)
    data = from_dataset(RANGE(4).shuffle(4, seed=1).map(table.lookup).batch(4))
    assert sorted(read(data)[0]) == [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RANGE(3), "not batches"),
        (lambda: tf.data.Dataset.from_tensor_slices((np.zeros((4, 7)), np.zeros(4))), "not batches"),
        (lambda: RANGE(0).batch(2), "no batch"),
        (lambda: RANGE(3).map(tf.range).ragged_batch(2), "must be dense"),
        (lambda: RANGE(3).map(lambda i: tf.sparse.eye(2)).batch(2), "must be dense"),
        (lambda: RANGE(4).window(2), "must be dense"),
        (lambda: [1, 2], r"from_dataset\(list\)"),
        (distributed, "not distributed yet"),
    ],
)
def test_what_is_not_batched_and_dense_is_refused(make, message):
    with pytest.raises(DataError, match=message):
        from_dataset(make())


class Counted:
    """A generator function that counts its runs, and whose numbers can start anywhere."""

    def __init__(self, first=0):
        self.first, self.runs, self.taken = first, 0, 0

    def __call__(self):
        self.runs += 1
        for i in range(self.first, self.first + 17):
            self.taken += 1
            yield i

    def dataset(self):
        return tf.data.Dataset.from_generator(self, output_signature=tf.TensorSpec((), tf.int64))


def test_a_generator_is_run_once_an_epoch_and_looked_at_on_the_way():
    source = Counted()
    data = from_dataset(source.dataset().batch(2))
    once = [[i, i + 1] for i in range(0, 16, 2)] + [[16]]
    identity = data.identity()
    assert (source.runs, source.taken < 17) == (1, True)
    batches = data.worker_batches(None, Share(1, 2))
    assert [own.numpy().tolist() for _, _, own in batches] == [batch[-1:] for batch in once]
    assert source.runs == 1
    assert identity == data.identity() == from_dataset(Counted().dataset().batch(2)).identity()
    assert identity != from_dataset(Counted(first=5).dataset().batch(2)).identity()
    assert [own.numpy().tolist() for _, _, own in batches] == [batch[-1:] for batch in once]
    assert source.runs == 2


def test_a_shuffled_generator_has_the_epochs_of_repeat():
    def make():
        return Counted().dataset().shuffle(20, seed=1).batch(3)

    stock = [ids.tolist() for ids in make().repeat(3).as_numpy_iterator()]
    data = from_dataset(make())
    data.identity()
    assert [batch for epoch in range(3) for batch in read_by(data, 2, first_epoch=epoch)][6:] == stock[6:]
    first, second = (from_dataset(make()).worker_batches(None, Share(i, 2)) for i in range(2))
    assert [[*a.numpy(), *b.numpy()] for (_, _, a), (_, _, b) in zip(first, second)] == stock[:6]


def test_a_used_up_generator_is_no_second_epoch():
    numbers = iter(range(10))
    dataset = tf.data.Dataset.from_generator(lambda: numbers, output_signature=tf.TensorSpec((), tf.int64))
    data = from_dataset(dataset.batch(4))
    data.identity()
    assert read(data, Share(0, 2)) == [[0, 1], [4, 5], [8]]
    assert read(data, Share(0, 2)) == []
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(DataError, match="iterator of batches is read once"):
        tfdist.fit(model, ((np.ones((2, 1)), np.ones((2, 1))) for _ in range(3)), epochs=2, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3
    spec = (tf.TensorSpec((None, 1)), tf.TensorSpec((None, 1)))
    batches = ((np.ones((2, 1)), np.ones((2, 1))) for _ in range(3))
    once = tf.data.Dataset.from_generator(lambda: batches, output_signature=spec)
    with pytest.raises(DataError, match="no batch for it.*train for one epoch"):
        tfdist.fit(model, once, epochs=2, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 6


def test_a_python_iterator_of_batches_is_data_for_one_epoch():
    def batches(sizes=(3, 3, 2)):
        for size in sizes:
            yield [{"a": np.ones((size, 4), "float32")}, np.arange(size)]

    data = from_dataset(batches())
    assert data.element_spec == ({"a": tf.TensorSpec((None, 4), tf.float32)}, tf.TensorSpec((None,), tf.int64))
    assert data.steps_per_epoch() is None
    found = list(data.worker_batches(None, Share(1, 2)))
    assert [y.numpy().tolist() for _, _, (_, y) in found] == [[2], [2], [1]]
    assert from_dataset(batches()).identity() == from_dataset(batches()).identity()
    assert from_dataset(batches()).identity() != from_dataset(batches((3, 3, 3))).identity()
    assert len(list(from_dataset(batches()).worker_batches(None, Share()))) == 3


@pytest.mark.parametrize(
    ("batches", "message"),
    [([], "yields no batch"), ([3.0], "not batches"), ([object()], "no batch"), ([(np.ones(2), None)], "no batch")],
)
def test_an_iterator_of_anything_else_is_refused(batches, message):
    with pytest.raises(DataError, match=message):
        from_dataset(iter(batches))


def test_ids_count_the_rows_unless_they_are_asked_to_tell_them_apart():
    dataset = tf.data.Dataset.from_tensor_slices(
        ({"a": np.arange(13) % 5, "b": [str(i) for i in range(13)]}, [1.0] * 13)
    )
    data = from_dataset(dataset.batch(4))
    assert [ids.numpy().tolist() for _, ids, _ in data.worker_batches(None, Share(1, 3))] == [[0], [0], [0], []]

    def told(workers, batch_size):
        marked = from_dataset(dataset.batch(batch_size)).with_ids()
        parts = [marked.worker_batches(None, Share(worker, workers)) for worker in range(workers)]
        return sorted(int(i) for part in parts for _, ids, _ in part for i in ids)

    assert told(3, 4) == told(1, 5)
    assert len(set(told(1, 13))) == 13
    assert min(told(1, 13)) >= 0


def test_batching_is_the_data_sets_own():
    data = from_dataset(RANGE(9).filter(lambda i: i > 1).batch(3))
    with pytest.raises(BatchError, match="batch_size=8"):
        data.worker_batches(8, Share())
    with pytest.raises(BatchError, match="drop_remainder=True"):
        data.worker_batches(None, Share(), drop_remainder=True)
    with pytest.raises(DataError, match="Epoch 2 of data of unknown size"):
        data.worker_batches(None, Share(), first_epoch=2, repeat=True)
