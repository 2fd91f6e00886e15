"""Mixtures: stated proportions in every batch, each part pass by pass, the same at any number of workers."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_data_order import global_batches
from tfdist.batching import Share
from tfdist.data import concatenate, from_arrays, from_dataset, mix
from tfdist.data.mixture import _slots
from tfdist.errors import DataError

some = settings(max_examples=14, deadline=None, derandomize=True)


def part(first, count, **order):
    return from_arrays(np.arange(first, first + count), **order)


def stream(data, batch_size, steps, share=None, first_step=0):
    batches = data.worker_batches(batch_size, share or Share(), first_step=first_step, repeat=True).take(steps)
    return [batch.numpy().tolist() for _, _, batch in batches]


@some
@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    batch_size=st.integers(1, 12),
    workers=st.sampled_from([2, 3, 4, 8]),
    seed=st.integers(0, 2**63 - 1),
    shuffle=st.booleans(),
)
def test_a_concatenation_has_each_example_once_at_any_number_of_workers(sizes, batch_size, workers, seed, shuffle):
    starts = np.cumsum([0, *sizes])
    data = concatenate([part(start, size) for start, size in zip(starts, sizes)], shuffle=shuffle, seed=seed)
    alone = global_batches(data, batch_size, 1)
    assert global_batches(data, batch_size, workers) == alone
    ids = [i for batch in alone for i in batch]
    assert (sorted(ids) if shuffle else ids) == list(range(sum(sizes)))


@some
@given(
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=3),
    weights=st.lists(st.integers(1, 7), min_size=3, max_size=3),
    batch_size=st.integers(1, 12),
    workers=st.sampled_from([1, 2, 3, 8]),
    first_step=st.integers(0, 40),
)
def test_a_mixture_is_a_pure_function_of_the_position(sizes, weights, batch_size, workers, first_step):
    parts = [part(100 * i, size, shuffle=True, seed=i) for i, size in enumerate(sizes)]
    weights = weights[: len(sizes)]
    data = mix(parts, weights)
    undisturbed = stream(data, batch_size, first_step + 8)
    assert [len(batch) for batch in undisturbed][:1] == [min(batch_size, sum(sizes))]
    own = [stream(data, batch_size, 8, Share(worker, workers), first_step) for worker in range(workers)]
    for step, batch in enumerate(undisturbed[first_step:]):
        bounds = [Share(worker, workers).bounds(len(batch)) for worker in range(workers)]
        assert [i for (a, b), rows in zip(bounds, own) for i in rows[step][: b - a]] == batch
    drawn = [i for batch in undisturbed for i in batch]
    for number, (size, weight) in enumerate(zip(sizes, weights)):
        of_part = [i for i in drawn if i // 100 == number]
        assert abs(len(of_part) - len(drawn) * weight / sum(weights)) <= 1.5
        seen = collections.Counter(of_part)
        times = [seen[100 * number + i] for i in range(size)]
        assert max(times) - min(times) <= 1  # pass by pass


def test_every_batch_has_its_share_of_each_part():
    data = mix([part(0, 700, shuffle=True), part(1000, 50), part(2000, 3)], [0.7, 0.25, 0.05])
    assert data.examples == 753
    for batch in stream(data, 20, 30):
        assert collections.Counter(i // 1000 for i in batch) == {0: 14, 1: 5, 2: 1}


def test_a_part_in_order_stays_in_order_over_the_epochs():
    drawn = [i for batch in stream(mix([part(0, 5), part(10, 90)], [1, 2], examples=6), 3, 8) for i in batch]
    assert [i for i in drawn if i < 10] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert [i for i in drawn if i >= 10] == list(range(10, 26))


def test_parts_have_their_own_maps_and_mixtures_are_parts_of_mixtures():
    doubled = part(0, 4).map(lambda i: 2 * i)
    inner = mix([doubled, part(100, 4)], [1, 1])
    data = mix([inner, part(1000, 8)], [1, 1]).map(lambda i: i + 1)
    drawn = [i - 1 for batch in stream(data, 4, 4) for i in batch]
    assert sorted(drawn) == [0, 2, 4, 6, 100, 101, 102, 103, *range(1000, 1008)]
    ids = [i for _, ids, _ in data.worker_batches(4, Share()) for i in ids.numpy().tolist()]
    assert sorted(ids) == list(range(16))


@given(st.lists(st.floats(1.0, 1e3), min_size=1, max_size=6))
def test_the_ratios_of_weights_hold_to_one_in_ten_thousand(weights):
    slots = _slots(weights, len(weights))
    assert min(slots) >= 1
    shares = np.asarray(weights) / sum(weights)
    np.testing.assert_allclose(np.asarray(slots) / sum(slots), shares, atol=1e-4 * (1 + len(weights)))


def test_plain_ratios_have_short_patterns():
    assert _slots([0.7, 0.2, 0.1], 3) == (7, 2, 1)
    assert _slots([2, 2], 2) == (1, 1)
    assert _slots([1 / 3, 2 / 3], 2) == (1, 2)
    assert _slots(np.float32([1, 2]), 2) == (1, 2)
    assert _slots([1e308, 1e308], 2) == (1, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: concatenate([part(0, 3, shuffle=True)]), "shuffled with seed 0.*concatenate"),
        (lambda: concatenate([]), "of nothing"),
        (lambda: mix([part(0, 3)], [1]).with_ids(), "ledger of a mixture.*concatenate"),
        (lambda: mix([from_dataset(tf.data.Dataset.range(3).batch(3))], [1]), "of SharedStream.*sample_from_datasets"),
        (lambda: mix([part(0, 3)], [1, 2]), "for 1 parts"),
        (lambda: mix([part(0, 3)], [0]), "number above 0"),
        (lambda: mix([part(0, 3)], ["a"]), "number above 0"),
        (lambda: mix([part(0, 3), part(3, 3)], [1e308, 1e300]), "less than 1 in 10,000"),
        (lambda: mix([part(0, 3)], [1], examples=0), "examples=0"),
        (lambda: mix([part(0, 3), from_arrays(np.zeros((3, 2)))], [1, 1]).element_spec, "Part 1 has elements"),
        (lambda: mix([part(0, 3), from_arrays({"a": np.zeros(3)})], [1, 1]).element_spec, "one form with"),
    ],
)
def test_what_cannot_be_mixed_is_refused_with_a_remedy(make, message):
    with pytest.raises(DataError, match=message):
        make()
