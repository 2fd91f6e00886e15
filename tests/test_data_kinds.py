"""Every kind of data: the same global batches at any number of workers, also where it stops and goes on with others."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdist.batching import Share
from tfdist.data import concatenate, from_arrays, from_dataset, from_tfds, from_tfrecords, mix

EXAMPLES, BATCH = 29, 6


class Numbers:
    """What TFDS calls a data source."""

    def __len__(self):
        return EXAMPLES

    def __getitem__(self, index):
        return np.int64(index)


def memory_mapped(folder, seed):
    np.arange(EXAMPLES).tofile(folder / "numbers")
    return from_arrays(np.memmap(folder / "numbers", np.int64, "r"), shuffle=True, seed=seed)


def records(folder, seed):
    for file in range(3):
        with tf.io.TFRecordWriter(str(folder / f"{file}.tfrecord")) as writer:
            for number in np.array_split(np.arange(EXAMPLES), 3)[file]:
                writer.write(str(number).encode())
    numbers = from_tfrecords(str(folder / "*.tfrecord"), shuffle=True, seed=seed)
    return numbers.map(lambda record: tf.strings.to_number(record, tf.int64))


def arrays(first, count, **order):
    return from_arrays(np.arange(first, first + count), **order)


def mixture(folder, seed):
    """No part of it comes again within an epoch."""
    return mix([arrays(0, 20, shuffle=True, seed=seed), arrays(20, 9, shuffle=True, seed=seed)], [20, 9])


KINDS = {
    "arrays": lambda folder, seed: arrays(0, EXAMPLES, shuffle=True, seed=seed).map(lambda i: i),
    "in order": lambda folder, seed: arrays(0, EXAMPLES),
    "memory map": memory_mapped,
    "data source": lambda folder, seed: from_tfds(Numbers(), as_supervised=False, shuffle=True, seed=seed),
    "records": records,
    "concatenation": lambda folder, seed: concatenate([arrays(0, 11), arrays(11, 18)], shuffle=True, seed=seed),
    "mixture": mixture,
    "data set": lambda folder, seed: from_dataset(tf.data.Dataset.range(EXAMPLES).shuffle(9, seed=seed).batch(BATCH)),
}


def batches(data, share, **where):
    size = BATCH if data.examples else None
    return list(data.worker_batches(size, share, **where))


def global_batches(data, workers, replicas=1, **where):
    """The global batches, put together from what the workers read."""
    parts = [batches(data, Share(worker, workers, replicas), **where) for worker in range(workers)]
    together = []
    for step in zip(*parts, strict=True):
        rows = [numbers.numpy().tolist()[: len(ids)] for _, ids, numbers in step]
        assert len({int(count) for count, _, _ in step}) == 1
        assert sum(map(len, rows)) == int(step[0][0])
        together.append([number for part in rows for number in part])
    return together


@pytest.mark.parametrize("kind", KINDS)
def test_stops_and_world_sizes_change_no_global_batch(kind, tmp_path):
    @settings(
        max_examples=3, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        workers=st.permutations([1, 2, 3, 4, 8]),
        replicas=st.integers(1, 2),
        stop=st.integers(0, 9),
        seed=st.integers(0, 2**62),
    )
    def check(workers, replicas, stop, seed):
        data = KINDS[kind](tmp_path, seed)
        undisturbed = [batch for epoch in (0, 1) for batch in global_batches(data, 1, first_epoch=epoch)]
        assert sorted(number for batch in undisturbed[:5] for number in batch) == list(range(EXAMPLES))
        assert sorted(number for batch in undisturbed[5:] for number in batch) == list(range(EXAMPLES))
        before, after = (
            [batch for epoch in (0, 1) for batch in global_batches(data, count, replicas, first_epoch=epoch)]
            for count in workers[:2]
        )
        assert before[:stop] + after[stop:] == undisturbed
        epoch, step = divmod(stop, 5)
        resumed = global_batches(data, workers[2], replicas, first_epoch=epoch, first_step=step)
        assert resumed == undisturbed[stop : (epoch + 1) * 5]

    check()
