"""Where every record of a list of files lies."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
import os
from typing import NamedTuple

import numpy as np
from tqdm import tqdm  # type: ignore[import-untyped]

from tfdist.data.records.files import ERRORS, Stamp, open_file
from tfdist.data.records.store import Store
from tfdist.data.records.walk import Walked, walk
from tfdist.errors import DataError

_log = logging.getLogger(__name__)

_SECONDS_WITHOUT_BAR = 2
_THREADS = min(32, 2 * (os.cpu_count() or 1))


class Places(NamedTuple):
    """Where records lie: for each the number of its file, the bytes `[begins, ends)` there, and its data's CRC-32C."""

    files: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    crcs: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Index:
    """The records of all files, counted through. It takes 12 bytes a record.

    Args:
        paths: the files, in order.
        stamps: the size and time of each when its records were found.
        first: int64 [files + 1], the number of the first record of each file, and of all records.
        offsets: int64 [records + files], the byte at which each record begins; behind those of each file, its end.
        crcs: uint32 [records], the CRC-32C of each record's data.
        kept: int64, the numbers of the records that are not left out; None if none is.
    """

    paths: tuple[str, ...]
    stamps: tuple[Stamp, ...]
    first: np.ndarray
    offsets: np.ndarray
    crcs: np.ndarray
    kept: np.ndarray | None

    @property
    def records(self) -> int:
        return int(self.first[-1]) if self.kept is None else len(self.kept)

    def locate(self, records: np.ndarray) -> Places:
        """The places of the records, of which those that are left out are not counted."""
        number = records if self.kept is None else self.kept[records]
        files = np.searchsorted(self.first, number, side="right") - 1
        return Places(files, self.offsets[number + files], self.offsets[number + files + 1], self.crcs[number])

    def identity(self) -> str:
        """Equal for files of the same names and sizes with the same records, wherever they lie."""
        names = [path.rpartition("/")[2] for path in self.paths]
        facts = repr([*zip(names, (stamp.size for stamp in self.stamps), self.first[1:].tolist())])
        kept = b"" if self.kept is None else self.kept.tobytes()
        return hashlib.blake2b(facts.encode() + self.crcs.tobytes() + kept, digest_size=8).hexdigest()


def make_index(paths: tuple[str, ...], index_dir=None, skip: bool = False) -> Index:
    """The index of the files, from what is kept of them and by walking through the others.

    Threads are enough: they wait for the files, and walking takes a microsecond a record.

    Args:
        paths: files as `find_files` returns them.
        index_dir: the folder to keep it in; by default beside each file, or else in `~/.cache/tfdist`.
        skip: leave damaged records out, with a warning that counts them.

    Raises:
        DataError: a file that cannot be read, is compressed or damaged, or changes meanwhile.
    """
    bar = tqdm(desc="Finding records", unit="B", unit_scale=True, delay=_SECONDS_WITHOUT_BAR)
    with bar, concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        one = functools.partial(_file_index, index_dir=index_dir, skip=skip, progress=bar.update)
        stamps, found = zip(*pool.map(one, paths))
    _warn_of_damage(paths, found)
    first = np.cumsum([0, *(len(walked.crcs) for walked in found)], dtype=np.int64)
    left_out = np.concatenate([start + walked.damaged for start, walked in zip(first, found)])
    return Index(
        paths,
        stamps,
        first,
        np.concatenate([walked.offsets for walked in found]),
        np.concatenate([walked.crcs for walked in found]),
        np.delete(np.arange(first[-1]), left_out) if len(left_out) else None,
    )


def _file_index(path: str, index_dir, skip: bool, progress) -> tuple[Stamp, Walked]:
    try:
        file = open_file(path)
        stamp = file.stamp()
        store = Store(path, index_dir)
        walked = store.load(stamp, skip)
        if walked is None:
            walked = walk(path, file, stamp.size, skip, progress)
            if file.stamp() != stamp:
                raise OSError("the file was written to meanwhile")
            store.save(stamp, walked)
    except ERRORS as error:
        raise DataError(f"{path}: its records cannot be found: {error}. Check the file, and run again.") from error
    return stamp, walked


def _warn_of_damage(paths, found):
    damaged = {path: walked for path, walked in zip(paths, found) if not walked.whole}
    if damaged:
        _log.warning(
            "Left out: %d damaged records, and %d bytes in which no record can be found any more. Files: %s",
            sum(len(walked.damaged) for walked in damaged.values()),
            sum(walked.lost for walked in damaged.values()),
            ", ".join(damaged),
        )
