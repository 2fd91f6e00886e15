"""Where every record of a list of files lies."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
import os

import numpy as np
from tqdm import tqdm  # type: ignore[import-untyped]

from tfdist.data.records.files import ERRORS, Stamp, open_file
from tfdist.data.records.store import Store
from tfdist.data.records.walk import Walked, walk
from tfdist.errors import DataError

_log = logging.getLogger(__name__)

_SECONDS_WITHOUT_BAR = 2
_THREADS = min(32, 2 * (os.cpu_count() or 1))


@dataclasses.dataclass(frozen=True, eq=False)
class Index:
    """The records of all files, counted through. It takes 8 bytes a record.

    Args:
        paths: the files, in order.
        stamps: the size and time of each when its records were found.
        first: int64 [files + 1], the number of the first record of each file, and of all records.
        offsets: int64 [records + files], the byte at which each record begins; behind those of each file, its end.
        whole: whether no record is left out.
    """

    paths: tuple[str, ...]
    stamps: tuple[Stamp, ...]
    first: np.ndarray
    offsets: np.ndarray
    whole: bool

    @property
    def records(self) -> int:
        return int(self.first[-1])

    def locate(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each record: the number of its file, and the bytes between which it lies there."""
        files = np.searchsorted(self.first, records, side="right") - 1
        return files, self.offsets[records + files], self.offsets[records + files + 1]

    def identity(self) -> str:
        """Equal for files of the same names and sizes with as many records, wherever they lie."""
        names = [path.rpartition("/")[2] for path in self.paths]
        facts = repr([*zip(names, (stamp.size for stamp in self.stamps), self.first[1:].tolist())])
        return hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()


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
    counts = [len(walked.offsets) - 1 for walked in found]
    return Index(
        paths,
        stamps,
        np.cumsum([0, *counts], dtype=np.int64),
        np.concatenate([walked.offsets for walked in found]),
        all(walked.whole for walked in found),
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
        skipped, lost = (sum(getattr(walked, name) for walked in damaged.values()) for name in ("skipped", "lost"))
        _log.warning(
            "Left out: %d damaged records, and %d bytes in which no record can be found any more. Files: %s",
            *(skipped, lost, ", ".join(damaged)),
        )
