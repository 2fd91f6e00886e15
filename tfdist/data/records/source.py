"""Records read at random."""

import contextlib
import dataclasses
import errno
import functools
import itertools
import threading

import numpy as np
import tensorflow as tf

from tfdist.data.python_read import read_in_python
from tfdist.data.records.files import ERRORS, Stamp, open_file
from tfdist.data.records.index import Index, Places
from tfdist.data.records.layout import FOOTER, HEADER, crc32c
from tfdist.errors import DataError

_LONGEST_RUN = 1 << 18  # bytes
_OPEN_FILES = 128
_LARGEST_BLOCK = 31 << 20  # bytes
_LONGEST_TURN = 0.05  # seconds

_turns = threading.Lock()


class RecordSource:
    """The records of an `Index`, as the bytes of their data. What is read is compared with its checksums."""

    def __init__(self, index: Index):
        self.index = index

    @property
    def examples(self) -> int:
        return self.index.records

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((None,), tf.string)

    def identity(self) -> str:
        return self.index.identity()

    def read(self, indices):
        return read_in_python(self._read_in_turn, indices, [self.spec])[0]

    def _read_in_turn(self, indices: np.ndarray) -> list[np.ndarray]:
        with _turn():
            return self._read(indices)

    def _read(self, indices: np.ndarray) -> list[np.ndarray]:
        """The records, read in the order in which they lie and returned in the order asked for."""
        _keep_freed_memory()
        order = np.argsort(indices)
        where = self.index.locate(indices[order])
        starts = _run_starts(where).tolist()
        places, files, begins, ends, crcs = (column.tolist() for column in (order, *where))
        found: list = [None] * len(places)
        current, file = -1, None
        for start, stop in itertools.pairwise(starts):
            number, begin = files[start], begins[start] + HEADER.size
            if number != current:
                current, file = number, self._opened(number, begins[start])
            buffer = self._bytes(number, file, begin, ends[stop - 1] - FOOTER.size)
            for i in range(start, stop):
                # A record that is read alone is the buffer, which is not copied then.
                data = buffer[begins[i] + HEADER.size - begin : ends[i] - FOOTER.size - begin]
                if crc32c(data) != crcs[i]:
                    raise _damage(self.index.paths[number], begins[i])
                found[places[i]] = data
        return [np.array(found, object)]

    def _opened(self, number: int, begin: int):
        """The file, to be read from byte `begin` on, if it is still the one that was indexed."""
        path, stamp = self.index.paths[number], self.index.stamps[number]
        try:
            file = _open(path, stamp)
            if file.stamp() == stamp:
                return file
            problem = "its size or time has changed since its records were found"
        except ERRORS as error:
            problem = str(error) or type(error).__name__
            if getattr(error, "errno", None) == errno.EMFILE:
                raise DataError(f"{path}: {problem}. Let the process open more: `ulimit -n 4096`.") from error
        raise DataError(
            f"{path}: the record at byte {begin} cannot be read any more: {problem}. Start again once the files stay."
        )

    def _bytes(self, number: int, file, begin: int, end: int) -> bytes:
        path = self.index.paths[number]
        try:
            buffer = file.read(begin, end - begin)
        except ERRORS as error:
            raise DataError(f"{path}: the data at byte {begin} cannot be read: {error}. Check the file.") from error
        if len(buffer) < end - begin:
            raise DataError(f"{path}: ends at byte {begin + len(buffer)}, amid the data from byte {begin} on.")
        return buffer


@dataclasses.dataclass(frozen=True, eq=False)
class SliceSource:
    """Some runs of another source's examples, one behind the other: `[begins[i], begins[i] + counts[i])`."""

    source: RecordSource
    begins: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def examples(self) -> int:
        return sum(self.counts)

    @property
    def spec(self):
        return self.source.spec

    def identity(self) -> str:
        return f"{self.source.identity()} {self.begins} {self.counts}"

    def read(self, indices):
        ends = list(itertools.accumulate(self.counts))
        shifts = [begin + count - end for begin, count, end in zip(self.begins, self.counts, ends)]
        run = tf.searchsorted(tf.constant(ends, tf.int64), indices, side="right")
        return self.source.read(indices + tf.gather(tf.constant(shifts, tf.int64), run))


@functools.lru_cache(_OPEN_FILES)
def _open(path: str, _stamp: Stamp):
    """The open file, one for all sources of this process; another file of that name has another stamp.

    Not kept by the source, which lives on: TensorFlow never lets a traced Python function go.
    """
    return open_file(path)


def _run_starts(where: Places) -> np.ndarray:
    """Where runs of sorted records that follow one another in a file begin, each to be read at once; and their end."""
    files, begins, ends, _ = where
    block = begins // _LONGEST_RUN
    apart = (files[1:] != files[:-1]) | (begins[1:] != ends[:-1]) | (block[1:] != block[:-1])
    return np.unique(np.concatenate([[0], 1 + np.flatnonzero(apart), [len(files)]]))


@contextlib.contextmanager
def _turn():
    """One thread at a time while records come from memory; more as soon as reading a batch takes longer than that.

    Threads that read at the same time hand the interpreter to and fro at each record, which costs more than the read.
    """
    mine = _turns.acquire(timeout=_LONGEST_TURN)
    try:
        yield
    finally:
        if mine:
            _turns.release()


@functools.cache
def _keep_freed_memory():
    """Lets the C library keep what batches free, rather than give it back and ask again for each batch.

    The GNU library gives memory back beyond twice the largest mapped block that was ever freed, up to blocks of 32 MB
    (mallopt(3), M_MMAP_THRESHOLD): so one is freed here. Page faults otherwise took half of the time.
    """
    bytes(_LARGEST_BLOCK)


def _damage(path, offset) -> DataError:
    return DataError(
        f"{path}: the record at byte {offset} is damaged: it does not match its checksum. Write the file again, or "
        'leave out what is damaged with damaged="skip".'
    )
