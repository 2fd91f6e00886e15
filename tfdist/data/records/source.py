"""Records read at random."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfdist.data.python_read import read_in_python
from tfdist.data.records.files import ERRORS, open_file
from tfdist.data.records.index import Index
from tfdist.data.records.layout import OVERHEAD, read_data
from tfdist.errors import DataError

_LONGEST_RUN = 1 << 20  # bytes
_OPEN_FILES = 128


class RecordSource:
    """The records of an `Index`, as the bytes of their data. What is read is compared with its checksums."""

    def __init__(self, index: Index):
        self.index = index
        self._open = functools.lru_cache(_OPEN_FILES)(lambda number: open_file(index.paths[number]))

    @property
    def examples(self) -> int:
        return self.index.records

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((None,), tf.string)

    def identity(self) -> str:
        return self.index.identity()

    def read(self, indices):
        return read_in_python(self._read, indices, [self.spec])[0]

    def _read(self, indices: np.ndarray) -> list[np.ndarray]:
        """The records, read in the order in which they lie and returned in the order asked for."""
        order = np.argsort(indices, kind="stable")
        files, begins, ends = (part.tolist() for part in self.index.locate(indices[order]))
        found: list = [None] * len(indices)
        places = order.tolist()
        for start, stop in _runs(files, begins, ends):
            records = self._read_run(files[start], begins[start:stop], ends[start:stop])
            for place, record in zip(places[start:stop], records):
                found[place] = record
        return [np.array(found, object)]

    def _read_run(self, number: int, begins: list[int], ends: list[int]) -> Iterator[bytes]:
        path, first = self.index.paths[number], begins[0]
        try:
            file = self._open(number)
            self._check_unchanged(number, file)
            buffer = file.read(first, ends[-1] - first)
        except ERRORS as error:
            raise DataError(
                f"{path}: the record at byte {first} cannot be read: {error}. Start again once the files stay."
            ) from error
        for begin, end in zip(begins, ends):
            data = read_data(buffer, begin - first)
            if data is None or (self.index.whole and len(data) + OVERHEAD != end - begin):
                raise _damage(path, begin)
            yield data

    def _check_unchanged(self, number, file):
        if file.stamp() != self.index.stamps[number]:
            raise OSError("the file has another size or time than when its records were found")


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


def _runs(files: list[int], begins: list[int], ends: list[int]) -> Iterator[tuple[int, int]]:
    """The `[start, stop)` of sorted records that follow one another in a file, to be read at once."""
    start = 0
    for i in range(1, len(files)):
        together = files[i] == files[start] and begins[i] == ends[i - 1] and ends[i] - begins[start] <= _LONGEST_RUN
        if not together:
            yield start, i
            start = i
    if files:
        yield start, len(files)


def _damage(path, offset) -> DataError:
    return DataError(
        f"{path}: the record at byte {offset} is damaged: it does not match its checksum. Write the file again, or "
        'leave out what is damaged with damaged="skip".'
    )
