"""Which examples each worker reads: each once an epoch, in an order that no number of workers changes."""

import collections

import numpy as np
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfdist.batching import EpochPlan, Share
from tfdist.data import from_arrays, from_tfds
from tfdist.data.order import Shuffled

# Every example traces several pipelines; a fixed choice of them keeps the time.
some = settings(max_examples=14, deadline=None, derandomize=True)


def global_batches(data, batch_size, workers, replicas=1, **where):
    """Each global batch's ids, put together from what the workers read; checks that they agree on its rows."""
    batches = collections.defaultdict(list)
    for worker in range(workers):
        share = Share(worker, workers, replicas)
        for step, (rows, ids, batch) in enumerate(data.worker_batches(batch_size, share, **where)):
            start, stop = share.bounds(int(rows))
            assert len(batch) == max(stop - start, 1)
            assert ids.numpy().tolist() == batch.numpy().tolist()[: stop - start]
            batches[step, int(rows)] += ids.numpy().tolist()
    assert all(len(ids) == rows for (_, rows), ids in batches.items())
    return [batches[key] for key in sorted(batches)]


@some
@given(
    examples=st.integers(1, 60),
    batch_size=st.integers(1, 25),
    workers=st.sampled_from([2, 3, 4, 8]),
    replicas=st.integers(1, 3),
    seed=st.integers(0, 2**63 - 1),
    mapped=st.booleans(),
)
@example(examples=2, batch_size=3, workers=4, replicas=1, seed=0, mapped=True)
# A part of 2 rows can be larger than the same part of 3 rows.
@example(examples=5, batch_size=3, workers=3, replicas=1, seed=0, mapped=True)
def test_any_number_of_workers_reads_the_same_global_batches(examples, batch_size, workers, replicas, seed, mapped):
    data = from_arrays(np.arange(examples), shuffle=True, seed=seed)
    data = data.map(lambda i: i) if mapped else data
    alone = global_batches(data, batch_size, 1)
    assert global_batches(data, batch_size, workers, replicas) == alone
    plan = EpochPlan(examples, batch_size)
    assert [len(batch) for batch in alone] == [plan.rows(step) for step in range(plan.steps)]
    assert sorted(i for batch in alone for i in batch) == list(range(examples))


@some
@given(
    examples=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    first_step=st.integers(0, 30),
    workers=st.sampled_from([1, 2, 3]),
    drop=st.booleans(),
)
def test_a_start_at_any_step_is_the_tail_of_the_undisturbed_stream(examples, batch_size, first_step, workers, drop):
    drop = drop and batch_size <= examples
    data = from_arrays(np.arange(examples), shuffle=True, seed=1)
    steps = data.steps_per_epoch(batch_size, drop)
    share = Share(workers - 1, workers)

    def ids(count, **where):
        batches = data.worker_batches(batch_size, share, drop_remainder=drop, **where)
        return [ids.numpy().tolist() for _, ids, _ in batches.take(count)]

    stream = ids(first_step + 2 * steps, repeat=True)
    assert ids(2 * steps, repeat=True, first_step=first_step) == stream[first_step:]
    epoch, step = divmod(first_step, steps)
    rest_of_the_epoch = stream[first_step : (epoch + 1) * steps]
    assert ids(-1, first_step=first_step) == rest_of_the_epoch
    assert ids(-1, first_epoch=epoch, first_step=step) == rest_of_the_epoch


class Watched:
    """A million numbers that note which of them are read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        self.read.append(index)
        return np.int64(index)


def test_a_late_start_reads_nothing_of_what_came_before():
    numbers = Watched()
    data = from_tfds(numbers, as_supervised=False, shuffle=True)
    batches = data.worker_batches(4, Share(1, 2), first_step=10**6 + 7, repeat=True)
    first = [ids.numpy().tolist() for _, ids, _ in batches.take(5)]
    wanted = list(Shuffled(10**6, 0).indices(tf.range(28, 48, dtype=tf.int64), tf.constant(4, tf.int64)).numpy())
    assert first == [wanted[i + 2 : i + 4] for i in range(0, 20, 4)]
    assert len(numbers.read) < 1000  # the batches that were read ahead, and the first example for its form


def test_a_dropped_remainder_differs_from_epoch_to_epoch():
    data = from_arrays(np.arange(10), shuffle=True)
    batches = data.worker_batches(4, Share(), drop_remainder=True, repeat=True).take(2 * 20)
    assert all(int(rows) == 4 for rows, _, _ in batches)
    epochs = np.array([ids.numpy() for _, ids, _ in batches]).reshape(20, 8)
    assert all(len(set(epoch)) == 8 for epoch in epochs.tolist())
    assert set(epochs.ravel().tolist()) == set(range(10))


def test_without_shuffle_the_order_is_that_of_the_source():
    data = from_arrays(np.arange(7))
    assert global_batches(data, 3, 2) == [[0, 1, 2], [3, 4, 5], [6]]


def orders(seeds, epochs, examples):
    positions = tf.range(examples, dtype=tf.int64)
    found = []
    for seed in seeds:
        order = tf.function(lambda epoch, seed=seed: Shuffled(examples, seed).indices(positions, epoch))
        found += [order(tf.constant(epoch, tf.int64)).numpy() for epoch in epochs]
    return found


def test_each_seed_and_epoch_has_an_order_of_its_own():
    found = orders([0, 1, 2**31 + 1, 2**62], [0, 1, 255, 256, 2**31], 50)
    assert all(sorted(order) == list(range(50)) for order in found)
    assert len({order.tobytes() for order in found}) == len(found)


def test_all_orders_of_three_examples_are_equally_likely():
    counts = collections.Counter(tuple(order.tolist()) for order in orders([0], range(1200), 3))
    assert len(counts) == 6
    assert all(130 < count < 270 for count in counts.values())


def test_batches_of_sorted_classes_are_mixed_as_at_random():
    """The variance of a class's count in a batch is that of drawing without replacement (hypergeometric)."""
    examples, batch = 60_000, 100
    positions = tf.range(batch, dtype=tf.int64)
    order = tf.function(lambda epoch: Shuffled(examples, 0).indices(positions, epoch))
    counts = [
        np.bincount(order(tf.constant(epoch, tf.int64)).numpy() * 10 // examples, minlength=10) for epoch in range(400)
    ]
    assert abs(np.var(counts, axis=0).mean() / (batch * 0.1 * 0.9) - 1) < 0.15


def test_positions_of_several_epochs_are_found_at_once():
    order = Shuffled(7, 3)
    positions, epochs = tf.range(21, dtype=tf.int64) % 7, tf.range(21, dtype=tf.int64) // 7
    alone = [order.indices(tf.range(7, dtype=tf.int64), tf.constant(epoch, tf.int64)).numpy() for epoch in range(3)]
    assert order.indices(positions, epochs).numpy().tolist() == np.concatenate(alone).tolist()
