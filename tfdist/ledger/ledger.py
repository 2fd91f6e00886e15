"""The file of a worker, written as it trains."""

import contextlib
import os
import pathlib
import re
import time
from collections.abc import Iterator, Sequence

import numpy as np

from tfdist.errors import DataError
from tfdist.ledger.frames import Ended, Frame, Start, Trained, encode, read_frames

_NAME = re.compile(r"worker-(\d+)\.ledger")


class Ledger:
    """Records the ids of the examples that a worker trains on, step by step, in `folder/worker-00000.ledger`.

    Every worker has its own file, which grows from run to run. What was appended survives the kill of the process; a
    record that a kill tore is cut off by the next run. A context manager.

    Args:
        folder: made if need be; all workers' files must come to lie in one folder before they are read.
        worker: rank of this worker in `[0, workers)`.
        workers: workers of this run.
        run: number of this run, the same on all workers and larger than that of any before. Before they open their
            ledgers the workers agree on the largest `next_run(folder)` of theirs.
        first_step: global step that the run starts at. From there on it replaces what earlier runs recorded.
        examples: examples of an epoch, whose ids are `[0, examples)`; None if unknown: then ids are any int64.
        dropped: examples of an epoch that are left out on purpose (`EpochPlan.dropped`).

    Raises: DataError if the file cannot be written, is damaged, or has a run of this number or a later one.
    """

    def __init__(
        self, folder, worker: int, workers: int, run: int, first_step: int, examples: int | None, dropped: int = 0
    ):
        self.path, self.run = pathlib.Path(folder) / f"worker-{worker:05d}.ledger", run
        with self._writing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            self._cut_torn_end()
            self._file = open(self.path, "ab")  # noqa: SIM115
        self._facts = workers, examples, dropped
        self._start(first_step)

    def take_back(self, first_step: int) -> None:
        """Begins another run at `first_step`: what was recorded from there on counts no more. Every worker calls it."""
        self.run += 1
        self._start(first_step)

    def append(self, epoch: int, first_step: int, counts: Sequence[int], ids: np.ndarray) -> None:
        """Records consecutive steps of one epoch. Every worker records every step, with 0 rows where it has none.

        Args:
            epoch: epoch of the data, from 0.
            first_step: global step of the first of them.
            counts: rows of this worker in each step.
            ids: int64 [sum(counts)], the ids of all steps one behind the other.

        Raises: DataError if `ids` has another length, or the file cannot be written.
        """
        if len(ids) != sum(counts):
            raise DataError(f"{self.path}: {len(ids)} ids for {sum(counts)} rows; each row has one id.")
        self._write(Trained.make(self.run, epoch, first_step, counts, ids))

    def end_epoch(self, epoch: int, step: int) -> None:
        """Records that the epoch is over after `step` steps of the whole training: what it missed is missing."""
        self._write(Ended(self.run, epoch, step))

    def flush(self) -> None:
        """Brings the file to the disk: before a checkpoint is committed, which must not know more than the ledger."""
        with self._writing():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; may be called more than once."""
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _start(self, first_step: int):
        self._write(Start(self.run, first_step, *self._facts, time.time()))

    def _cut_torn_end(self):
        frames, intact = read_frames(self.path)
        last = max((frame.run for frame in frames), default=0)
        if self.run <= last:
            raise DataError(
                f"{self.path}: run {self.run} after run {last}; a run's number is larger than that of any before. "
                "Take next_run(folder)."
            )
        os.truncate(self.path, intact)

    def _write(self, frame: Frame):
        with self._writing():
            self._file.write(encode(frame))
            self._file.flush()

    @contextlib.contextmanager
    def _writing(self):
        try:
            yield
        except OSError as error:
            raise DataError(
                f"{self.path}: {error.strerror}. The ledger needs a folder that can be written to; free some space, "
                "name another folder or train without it."
            ) from error


def next_run(folder) -> int:
    """One more than the last run that any file in `folder` knows; 1 if there is none. Raises: DataError if damaged."""
    frames = (frame for _, path in ledger_files(folder) for frame in read_frames(path)[0])
    return 1 + max((frame.run for frame in frames), default=0)


def ledger_files(folder) -> Iterator[tuple[int, pathlib.Path]]:
    """The rank of the worker and the path of each ledger in `folder`, by rank."""
    for path in sorted(pathlib.Path(folder).glob("worker-*.ledger")):
        if name := _NAME.fullmatch(path.name):
            yield int(name[1]), path
