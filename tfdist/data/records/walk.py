"""From record to record through a file, to find where each begins."""

import array
import dataclasses
from collections.abc import Callable

import numpy as np

from tfdist.data.records.layout import HEADER, OVERHEAD, compression, read_data, read_length
from tfdist.errors import DataError

_CHUNK = 256 * 1024  # bytes


@dataclasses.dataclass(frozen=True, eq=False)
class Walked:
    """Where the records of a file lie.

    Args:
        offsets: int64, the byte at which each record begins, and behind them the byte at which the last one ends.
        verified: whether the checksums of all data were compared.
        skipped: damaged records that are left out.
        lost: bytes behind the last record of which nothing can be said.
    """

    offsets: np.ndarray
    verified: bool = False
    skipped: int = 0
    lost: int = 0

    @property
    def whole(self) -> bool:
        """Whether the records fill the file without a gap."""
        return not self.skipped and not self.lost


def walk(path: str, file, size: int, skip: bool, progress: Callable[[int], object]) -> Walked:
    """Finds the records of a file of `size` bytes.

    Only headers are looked at, unless damaged records are to be skipped: then all data is read and compared.

    Args:
        file: what `open_file(path)` returned.
        skip: leave damaged records out, and what lies behind a damaged length. Otherwise that is an error.
        progress: called with the number of bytes done since the last call.

    Raises:
        DataError: a compressed file; a damaged length or a truncated record, unless `skip`.
    """
    _refuse_compressed(path, file.read(0, HEADER.size))
    offsets, skipped, at = array.array("q"), 0, 0
    while at < size:
        stop, damaged = _walk_chunk(file, at, size, offsets, skip)
        skipped += damaged
        progress(stop - at)
        if stop == at:
            break
        at = stop
    if at < size and not skip:
        raise _damage(path, file.read(at, HEADER.size), at, size)
    progress(size - at)
    offsets.append(at)
    return Walked(np.frombuffer(offsets, np.int64), skip, skipped, size - at)


def _walk_chunk(file, begin: int, size: int, offsets, verify: bool) -> tuple[int, int]:
    """Appends the records whose headers lie in the chunk at `begin`.

    Returns: where the next record begins, `begin` if the one there is damaged, and how many were left out.
    """
    buffer, at, skipped = file.read(begin, _CHUNK), 0, 0
    while at + HEADER.size <= len(buffer):
        length = read_length(buffer, at)
        if length is None or begin + at + length + OVERHEAD > size:
            break
        end = at + length + OVERHEAD
        if verify and end > len(buffer):
            if at:
                break
            buffer = file.read(begin, end)
        if verify and read_data(buffer, at) is None:
            skipped += 1
        else:
            offsets.append(begin + at)
        at = end
    return begin + at, skipped


def _refuse_compressed(path, head):
    kind = compression(head)
    if kind is not None:
        raise DataError(
            f"{path} is compressed ({kind}), and compressed records cannot be read at random. Write it again without "
            f'compression, or read it in order: tf.data.TFRecordDataset(files, "{kind}") by way of from_dataset.'
        )


def _damage(path, head, at, size) -> DataError:
    if len(head) < HEADER.size or read_length(head, 0) is not None:
        problem = f"the record at byte {at} is truncated: the file ends at byte {size}"
    else:
        problem = f"the length of the record at byte {at} is damaged, so that none behind it can be found"
    return DataError(f'{path}: {problem}. Write the file again, or leave out what is damaged with damaged="skip".')
