"""What a training has seen, written to a ledger."""

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfdist.ledger import Ledger, last_step, next_run
from tfdist.loop.feed import Feed
from tfdist.step.agree import gather


class Recorder:
    """Appends what each call has seen, under the epoch of the data that it belongs to.

    Data that does not know its size, and of which the training takes so many steps per epoch, has those epochs.
    """

    def __init__(self, ledger: Ledger, feed: Feed, first_step: int, first_epoch: int):
        self._ledger, self._size, self._step, self._epoch = ledger, feed.size or feed.steps, first_step, first_epoch

    def __call__(self, counts, ids) -> None:
        """Records the steps of a call: rows of each, and the ids of all."""
        counts, ids = np.asarray(counts), np.asarray(ids)
        while len(counts):
            steps = self._steps_left(len(counts))
            rows = int(counts[:steps].sum())
            self._ledger.append(self._epoch, self._step, counts[:steps].tolist(), ids[:rows])
            self._step += steps
            counts, ids = counts[steps:], ids[rows:]
            if self._size and self._step % self._size == 0:
                self.end_epoch()

    def end_epoch(self) -> None:
        """Says that an epoch of data is over whose size nobody knows."""
        self._ledger.end_epoch(self._epoch, self._step)
        self._epoch += 1

    def _steps_left(self, steps: int) -> int:
        return min(steps, self._size - self._step % self._size) if self._size else steps


@contextlib.contextmanager
def recorder(folder, strategy, feed: Feed, first_epoch: int) -> Iterator[Recorder | None]:
    """The recorder of a training that starts at `first_epoch`, in `folder`; None without a folder.

    Raises:
        DataError: the folder cannot be written to, or holds the ledger of another training.
    """
    if folder is None:
        yield None
        return
    begun = [next_run(folder), last_step(folder, first_epoch - 1)]
    share = feed.share
    gather_all = tf.function(lambda values: gather(strategy, share, values), autograph=False)
    run, step = gather_all(tf.constant(begun, tf.int64)).numpy().max(axis=0).tolist()
    if feed.steps is not None:
        step = first_epoch * feed.steps
    epoch = step // feed.size if feed.size else first_epoch
    plan = feed.plan
    facts = (None, 0) if plan is None else (plan.examples, plan.dropped)
    with Ledger(folder, share.worker, share.workers, run, step, *facts) as ledger:
        yield Recorder(ledger, feed, step, epoch)
