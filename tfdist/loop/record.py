"""What a training has seen, written to a ledger."""

import contextlib
from collections.abc import Iterator

import numpy as np

from tfdist.ledger import Ledger, last_step, next_run
from tfdist.loop.feed import Feed
from tfdist.progress import Progress
from tfdist.step.agree import gather_now


class Recorder:
    """Appends what each call has seen, under the epoch of the data that it belongs to."""

    def __init__(self, ledger: Ledger, size: int | None, first_step: int, epoch: int, position: int):
        """`size`: steps of an epoch of the data, if known; `epoch` and `position` in it: where the training starts."""
        self._ledger, self._size, self._step = ledger, size, first_step
        self._epoch, self._position = epoch, position
        self._ended: list[int] = []  # steps of each epoch that is over

    def __call__(self, counts, ids) -> None:
        """Records the steps of a call: rows of each, and the ids of all."""
        counts, ids = np.asarray(counts), np.asarray(ids)
        while len(counts):
            steps = self._steps_left(len(counts))
            rows = int(counts[:steps].sum())
            self._ledger.append(self._epoch, self._step, counts[:steps].tolist(), ids[:rows])
            self._step += steps
            self._position += steps
            counts, ids = counts[steps:], ids[rows:]
            if self._position == self._size:
                self.end_epoch()

    def flush(self) -> None:
        """Brings what was recorded to the disk."""
        self._ledger.flush()

    def end_epoch(self) -> None:
        """Says that an epoch of data is over whose size nobody knows."""
        self._ledger.end_epoch(self._epoch, self._step)
        self._ended.append(self._position)
        self._epoch, self._position = self._epoch + 1, 0

    def take_back(self, steps: int) -> None:
        """Takes the last `steps` steps back: in their place, nobody has seen anything."""
        lengths = self._rewind(steps)
        self._ledger.take_back(self._step)
        for epoch, length in enumerate(lengths):
            if epoch:
                self.end_epoch()
            self(np.zeros(length, np.int64), np.zeros(0, np.int64))

    def _rewind(self, steps: int) -> list[int]:
        """Goes back; returns the steps in each of the epochs that were gone through, but for ends of known epochs."""
        self._step -= steps
        if self._size:
            self._epoch, self._position = divmod(self._epoch * self._size + self._position - steps, self._size)
            return [steps]
        lengths = [self._position]
        while sum(lengths) < steps and self._ended:
            lengths.insert(0, self._ended.pop())
        self._epoch -= len(lengths) - 1
        self._position = max(sum(lengths) - steps, 0)
        return [steps - sum(lengths[1:]), *lengths[1:]]

    def _steps_left(self, steps: int) -> int:
        return min(steps, self._size - self._position) if self._size else steps


@contextlib.contextmanager
def recorder(folder, strategy, feed: Feed, start: Progress) -> Iterator[Recorder | None]:
    """The recorder of a training that starts at `start`, in `folder`; None without a folder.

    Raises:
        DataError: the folder cannot be written to, or holds the ledger of another training.
    """
    if folder is None:
        yield None
        return
    size, epoch, position = _start(feed, start)
    share = feed.share
    known = [next_run(folder), last_step(folder, epoch - 1)]
    run, before = gather_now(strategy, share, known).max(axis=0).tolist()
    # A ledger that begins with this run counts the steps before it as this run would have made them.
    first_step = position + (before or epoch * (size or 0))
    plan = feed.plan
    facts = (None, 0) if plan is None else (plan.examples, plan.dropped)
    with Ledger(folder, share.worker, share.workers, run, first_step, *facts) as ledger:
        yield Recorder(ledger, size, first_step, epoch, position)


def _start(feed: Feed, start: Progress) -> tuple[int | None, int, int]:
    """The size of an epoch of the data in steps, if known; the epoch of the data to start in, and the step in it.

    Data that never ends has the training's epochs. Of data of unknown size that ends, the training's epochs of so many
    steps are one epoch of the data, which is read once.
    """
    size = feed.size or (feed.steps if feed.steps and feed.is_endless else None)
    if size is None and feed.steps is None:
        return None, start.epoch, start.step
    position = start.epoch * (feed.steps or size or 0) + start.step
    return (None, 0, position) if size is None else (size, *divmod(position, size))
