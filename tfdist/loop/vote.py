"""Steps before which the workers tell each other what they have: whether they go on, and with how many rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfdist.errors import DataError
from tfdist.loop.failures import ended_early, no_batch, told_to_users
from tfdist.loop.feed import Feed
from tfdist.progress import Pause
from tfdist.step.parts import Rows
from tfdist.step.run import Runner

_ENDED = -1
_GO = 1


class Turn(NamedTuple):
    """A step that all workers make: its `Rows`, and this worker's ids and batch."""

    rows: Rows
    ids: Any
    batch: Any


class Stopped(Exception):
    """A worker wants to stop."""


def turns(runner: Runner, feed: Feed, step: int, wish, grant) -> Iterator[Turn]:
    """The steps of an epoch from `step` on, until the data has ended on all workers or there were as many as asked for.

    Where each worker has rows of its own, one whose data has ended goes on without rows until all have ended.

    Args:
        wish: `() -> Pause | None`, what this worker wants before the next step.
        grant: `Pause -> None`, called on all workers at the same step where one of them wanted it; not for STOP.

    Raises:
        Stopped: a worker wants to stop.
        DataError: data that is the same on all workers ended on some of them, or all of it before its time or at once.
    """
    batches = feed.epoch()
    last: Any = None
    while feed.steps is None or step < feed.steps:
        with told_to_users(feed):
            found = next(batches, None)
        own = _ENDED if found is None else int(tf.size(found[1]))
        while (votes := _votes(runner, feed, wish(), own, found))[0] != _GO:
            if votes[0] == Pause.STOP:
                raise Stopped
            grant(Pause(votes[0]))
        _, rows, alls = votes
        if (rows == _ENDED).all():
            if feed.steps is not None:
                raise ended_early(feed)
            if step == 0:
                raise no_batch()
            return
        _check(feed, step, alls)
        total = int(np.maximum(rows, 0).sum())
        if total == 0:
            continue  # a batch without rows is no step
        last = found if own > 0 or not feed.data.shares_rows else _without_rows(feed, last)
        yield Turn(Rows(tf.constant(total, tf.int64), tf.size(last[1], tf.int64)), last[1], last[2])
        step += 1


def _votes(runner: Runner, feed: Feed, wish: Pause | None, own: int, found):
    """What the workers want (the first thing first), the rows that each has, and those that it thinks all have."""
    with told_to_users(feed):
        go, rows, alls = np.asarray(
            runner.gather(tf.constant([_GO if wish is None else wish, own, _all(found)], tf.int64))
        ).T
    return int(go.min()), rows, alls


def _all(found) -> int:
    return _ENDED if found is None else int(found[0])


def _check(feed: Feed, step: int, alls) -> None:
    """Raises DataError where a stream that should be the same on all workers is not."""
    if feed.data.shares_rows:
        return
    if len(set(alls.tolist())) > 1:
        state = ", ".join(
            f"worker {worker} {'has no more' if count == _ENDED else f'has a batch of {count} rows'}"
            for worker, count in enumerate(alls.tolist())
        )
        raise DataError(
            f"At step {step} of an epoch {state}: the data set must be the same on every worker. Make it depend on "
            "nothing that differs between them, or hand over a function of the input context."
        )


def _without_rows(feed: Feed, last):
    """A batch of one row that counts as none: the last one seen, for its values are sound."""
    if last is None:
        return None, tf.zeros([0], tf.int64), tf.nest.map_structure(_one_row, feed.batch_spec)
    return None, last[1][:0], tf.nest.map_structure(lambda leaf: None if leaf is None else leaf[:1], last[2])


def _one_row(spec):
    shape = [1, *(1 if size is None else size for size in spec.shape[1:])]
    return tf.fill(shape, "") if spec.dtype == tf.string else tf.zeros(shape, spec.dtype)
