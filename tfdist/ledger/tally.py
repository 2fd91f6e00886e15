"""How often each example of each epoch was trained on."""

import dataclasses

import numpy as np

from tfdist.ledger.book import Book, Record

_NAMED = 5  # ids that a message names


@dataclasses.dataclass(frozen=True)
class Found:
    """Ids of which something is to be said: how many there are, and the first few."""

    count: int
    first: tuple[int, ...]

    @classmethod
    def make(cls, ids) -> "Found":
        """Of a vector of different ids."""
        return cls(len(ids), tuple(ids[:_NAMED].tolist()))


@dataclasses.dataclass(frozen=True)
class WorkerTally:
    """What one worker trained on in an epoch; `once`, `more`: of its examples, those that all together saw so often."""

    worker: int
    steps: int
    rows: int
    once: int
    more: int


@dataclasses.dataclass(frozen=True)
class Gap:
    """Steps of `[first_step, stop)` that worker `worker` should have recorded and has not: `steps` of them."""

    worker: int
    first_step: int
    stop: int
    steps: int


@dataclasses.dataclass(frozen=True)
class EpochTally:
    """What all workers trained on in an epoch.

    Attributes:
        examples: how many the epoch has; where unknown, how many there are in all epochs together.
        known: whether that number was given.
        dropped: how many of them are left out on purpose.
        more: ids that were seen twice or more.
        missing: ids that were not seen.
        foreign: ids that are not those of an example.
        gaps: what is not recorded although it was trained.
        begun: whether the ledger has the beginning of the epoch.
        over: whether it has the end.
    """

    epoch: int
    examples: int
    known: bool
    dropped: int
    steps: int
    rows: int
    once: int
    more: Found
    missing: Found
    foreign: Found
    gaps: tuple[Gap, ...]
    begun: bool
    over: bool
    workers: tuple[WorkerTally, ...]

    @property
    def lacks(self) -> int:
        """Examples that are missing and should not be."""
        return max(self.missing.count - self.dropped, 0) if self.begun and self.over else 0

    @property
    def exactly_once(self) -> bool:
        """Whether nothing speaks against each example having been seen exactly once, as far as the epoch goes."""
        return not (self.more.count or self.lacks or self.foreign.count or self.gaps)


def tally(book: Book) -> list[EpochTally]:
    """Counts every epoch that has a record."""
    everything = _all_ids(book)
    begin, tallies = min(run.start.first_step for run in book.runs.values()), []
    for epoch, records in book.epochs.items():
        tallies.append(_Epoch(book, epoch, records, everything, begin).tally())
        begin = max(begin, *(record.stop for record in records), book.ends.get(epoch, 0))
    return tallies


class _Epoch:
    """Counts one epoch, which begins at the global step `begin`; `everything`: the ids where none are given."""

    def __init__(self, book: Book, epoch: int, records: list[Record], everything, begin: int):
        self.book, self.epoch, self.begin = book, epoch, begin
        self.start = book.runs[max(record.frame.run for record in records)].start
        examples = self.start.examples
        self.known = examples is not None
        self.everything = everything if examples is None else np.arange(examples)
        self.steps = {worker: _steps(own) for worker, own in _by_worker(records)}
        self.ids = {worker: np.concatenate([record.ids() for record in own]) for worker, own in _by_worker(records)}
        self.places = {worker: self._places(ids) for worker, ids in self.ids.items()}
        self.all_steps = np.unique(np.concatenate(list(self.steps.values())))

    def tally(self) -> EpochTally:
        ids = np.concatenate(list(self.ids.values()))
        counts = np.bincount(np.concatenate(list(self.places.values())), minlength=len(self.everything))
        return EpochTally(
            epoch=self.epoch,
            examples=len(self.everything),
            known=self.known,
            dropped=self.start.dropped,
            steps=len(self.all_steps),
            rows=len(ids),
            once=int(np.sum(counts == 1)),
            more=Found.make(self.everything[counts > 1]),
            missing=Found.make(self.everything[counts == 0]),
            foreign=Found.make(self._foreign(ids)),
            gaps=tuple(self._gaps(self._over(len(ids)))),
            begun=self.begin == 0 or self.epoch != min(self.book.epochs),
            over=self._over(len(ids)),
            workers=tuple(self._worker(worker, counts) for worker in self.ids),
        )

    def _worker(self, worker, counts):
        places = self.places[worker]
        more = np.unique(places[counts[places] > 1])
        once = int(np.sum(counts[places] == 1))
        return WorkerTally(worker, len(np.unique(self.steps[worker])), len(self.ids[worker]), once, len(more))

    def _places(self, ids):
        """Where `everything` has each of `ids`, in any order; foreign ones left out."""
        if not self.known:
            return np.searchsorted(self.everything, np.sort(ids))  # several times as fast to find in order
        return ids[(ids >= 0) & (ids < len(self.everything))]

    def _foreign(self, ids):
        return np.unique(ids[(ids < 0) | (ids >= len(self.everything))]) if self.known else ids[:0]

    def _over(self, rows):
        followed = self.epoch < max(self.book.epochs)
        complete = self.known and rows >= len(self.everything) - self.start.dropped
        return followed or complete or self.epoch in self.book.ends

    def _gaps(self, over):
        """A step was trained if the epoch went on after it, or a later run started behind it."""
        last_start = self.book.runs[max(self.book.runs)].start.first_step
        end = max(self.all_steps[-1] + 1, self.book.ends.get(self.epoch, 0))
        end = end if over else max(self.all_steps[0], last_start)
        for run in self.book.runs.values():
            steps = np.arange(max(self.begin, run.start.first_step), min(end, run.stop))
            for worker in range(run.start.workers):
                absent = np.setdiff1d(steps, self.steps.get(worker, steps[:0]))
                if len(absent):
                    yield Gap(worker, int(absent[0]), int(absent[-1]) + 1, len(absent))


def _all_ids(book: Book):
    """The ids of all epochs of which no number of examples is known, in order."""
    ids = np.zeros(0, np.int64)
    for records in book.epochs.values():
        if book.runs[max(record.frame.run for record in records)].start.examples is None:
            ids = _different(np.concatenate([ids, *(record.ids() for record in records)]))
    return ids


def _different(values):
    """The different ones of `values`, in order; NumPy's `unique` takes ten times as long."""
    values = np.sort(values)
    return values[np.append(values[:1] == values[:1], values[1:] != values[:-1])]


def _by_worker(records):
    ranks = sorted({record.worker for record in records})
    return [(rank, [record for record in records if record.worker == rank]) for rank in ranks]


def _steps(records):
    return np.concatenate([np.arange(record.first_step, record.stop) for record in records])
