"""The arithmetic of batches, for every size: hypothesis draws them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.batching import EpochPlan, Share, elastic_accumulation, part_start
from tfdist.errors import BatchError

rows = st.integers(0, 500)
parts = st.integers(1, 40)


def sizes(rows, parts):
    return [part_start(rows, parts, i + 1) - part_start(rows, parts, i) for i in range(parts)]


@given(rows, parts)
def test_parts_cover_each_row_once_and_differ_by_one_at_most(rows, parts):
    split = sizes(rows, parts)
    assert part_start(rows, parts, 0) == 0
    assert sum(split) == rows
    assert max(split) - min(split) <= 1
    assert min(split) >= 0


@given(rows, parts)
def test_rows_fewer_than_parts_fill_one_part_each(rows, parts):
    filled = [size for size in sizes(rows, parts) if size]
    assert len(filled) == min(rows, parts)


@given(rows, st.integers(1, 8), st.integers(1, 8))
def test_rows_are_split_over_workers_and_then_over_their_replicas(rows, workers, replicas):
    end, sizes = 0, []
    for worker in range(workers):
        share = Share(worker, workers, replicas)
        start, stop = share.bounds(rows)
        bounds = [share.replica_bounds(stop - start, replica) for replica in range(replicas)]
        assert (start, bounds[0][0], bounds[-1][1]) == (end, 0, stop - start)
        assert all(left[1] == right[0] for left, right in itertools.pairwise(bounds))
        sizes += [last - first for first, last in bounds]
        end = stop
    assert end == rows
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0 or rows < workers * replicas


@given(rows, st.integers(1, 8), st.integers(1, 6))
def test_micro_batches_of_all_replicas_cover_each_row_once(rows, replicas, accumulate):
    micro_batches = [sizes(size, accumulate) for size in sizes(rows, replicas)]
    assert sum(map(sum, micro_batches)) == rows


@given(st.integers(1, 500), st.integers(1, 100), st.booleans())
def test_an_epoch_holds_each_example_once_or_says_how_many_it_drops(examples, batch_size, drop_remainder):
    if drop_remainder and batch_size > examples:
        with pytest.raises(BatchError, match=f"batch size of at most {examples}"):
            EpochPlan(examples, batch_size, drop_remainder)
        return
    plan = EpochPlan(examples, batch_size, drop_remainder)
    batches = [plan.rows(step) for step in range(plan.steps)]
    assert sum(batches) + plan.dropped == examples
    assert batches[-1] == plan.last_rows
    assert all(size == batch_size for size in batches[:-1])
    assert 1 <= plan.last_rows <= batch_size
    assert plan.dropped == (examples % batch_size if drop_remainder else 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EpochPlan(0, 4), "0 examples"),
        (lambda: EpochPlan(5, 0), "batch_size=0"),
        (lambda: EpochPlan(5, 8, drop_remainder=True), "drops all 5 examples"),
        (lambda: Share(2, 2), "Worker 2 of 2"),
        (lambda: Share(-1, 2), "Worker -1 of 2"),
        (lambda: Share(0, 1, 0), "0 replicas"),
    ],
)
def test_what_cannot_be_split_is_refused(make, message):
    with pytest.raises(BatchError, match=message):
        make()


@given(st.integers(1, 2000), st.integers(1, 5), st.integers(1, 16), st.integers(1, 16))
def test_fewer_workers_have_no_larger_micro_batches_than_all_of_them(rows, accumulate, workers, full):
    workers, full = sorted((workers, full))

    def largest(workers, accumulate):
        return max(max(sizes(size, accumulate)) for size in sizes(rows, workers))

    more = elastic_accumulation(accumulate, workers, full)
    assert largest(workers, more) <= largest(full, accumulate)
    assert more % accumulate == 0
    assert elastic_accumulation(accumulate, full, full) == accumulate
    assert more == accumulate or workers * (more - accumulate) < full * accumulate  # the smallest multiple
