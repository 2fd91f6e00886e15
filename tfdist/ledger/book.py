"""The ledgers of all workers and runs as one: which of the recorded steps count."""

import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np

from tfdist.errors import DataError
from tfdist.ledger.frames import Ended, Frame, Start, Trained, read_frames
from tfdist.ledger.ledger import ledger_files


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, whose record counts for the steps `[start.first_step, stop)`: from `stop` on a later run has its place.

    After a kill the steps since the last checkpoint are trained again. What the model has learnt from a step is what
    the last run that went through it trained on, so that a step belongs to the last run that starts at or before it.
    """

    start: Start
    stop: int


@dataclasses.dataclass(frozen=True)
class Record:
    """Steps `[first_step, stop)` of an epoch that a worker has recorded and that count."""

    worker: int
    first_step: int
    stop: int
    frame: Trained

    def ids(self) -> np.ndarray:
        """The ids of these steps: an int64 vector."""
        return self.frame.between(self.first_step, self.stop)


@dataclasses.dataclass(frozen=True)
class Book:
    """What the workers recorded, without the steps that were trained again.

    Attributes:
        runs: by number.
        epochs: the records of each epoch; only epochs that have one.
        ends: for epochs that were ended, the number of steps of the whole training then done.
    """

    runs: dict[int, Run]
    epochs: dict[int, list[Record]]
    ends: dict[int, int]


def read_book(folder: pathlib.Path) -> Book:
    """Reads all ledgers in `folder`.

    Raises: DataError if there are none, one is damaged, or their runs contradict each other.
    """
    frames = [(worker, frame) for worker, path in ledger_files(folder) for frame in read_frames(path)[0]]
    if not frames:
        raise DataError(f"{folder}: no ledger; its files are named worker-00000.ledger. Name the run's folder.")
    runs = _runs(folder, [frame for _, frame in frames])
    epochs: dict[int, list[Record]] = {}
    for worker, frame in frames:
        if isinstance(frame, Trained) and (record := _record(worker, frame, runs[frame.run])):
            epochs.setdefault(frame.epoch, []).append(record)
    ends = {frame.epoch: frame.step for _, frame in frames if isinstance(frame, Ended) and _counts(frame, runs)}
    return Book(runs, dict(sorted(epochs.items())), ends)


def last_step(folder, epoch: int) -> int:
    """The steps of the whole training that are done by the end of `epoch`; 0 if no ledger in `folder` knows."""
    if next(ledger_files(folder), None) is None:
        return 0
    book = read_book(pathlib.Path(folder))
    stops = [record.stop for number, records in book.epochs.items() if number <= epoch for record in records]
    return max(stops, default=0)


def _runs(folder, frames: list[Frame]) -> dict[int, Run]:
    starts: dict[int, Start] = {}
    for frame in frames:
        if isinstance(frame, Start):
            _check_same(folder, starts.setdefault(frame.run, frame), frame)
    return {start.run: Run(start, stop) for start, stop in _with_stops(starts)}


def _with_stops(starts: dict[int, Start]) -> Iterator[tuple[Start, int]]:
    stop = int(np.iinfo(np.int64).max)
    for run in sorted(starts, reverse=True):
        yield starts[run], stop
        stop = min(stop, starts[run].first_step)


def _check_same(folder, one: Start, other: Start):
    if dataclasses.replace(one, time=other.time) != other:
        raise DataError(
            f"{folder}: two workers disagree about run {one.run}: {one} and {other}. A folder holds the ledgers of one "
            "training; keep those of another one apart."
        )


def _record(worker, frame: Trained, run: Run) -> Record | None:
    first_step = max(frame.first_step, run.start.first_step)
    stop = min(frame.first_step + frame.steps, run.stop)
    return Record(worker, first_step, stop, frame) if first_step < stop else None


def _counts(frame: Ended, runs) -> bool:
    run = runs[frame.run]
    return run.start.first_step < frame.step <= run.stop
