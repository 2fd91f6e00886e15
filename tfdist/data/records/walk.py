"""From record to record through a file, to find where each begins."""

import array
import dataclasses
from collections.abc import Callable

import numpy as np

from tfdist.data.records.layout import FOOTER, HEADER, OVERHEAD, checksum, compression, crcs_of, read_length
from tfdist.errors import DataError

_CHUNK = 256 * 1024  # bytes


@dataclasses.dataclass(frozen=True, eq=False)
class Walked:
    """Where the records of a file lie, and what their data has to be.

    Args:
        offsets: int64 [n + 1], the byte at which each record begins, and behind them the byte at which the last one
            ends.
        crcs: uint32 [n], the CRC-32C that each record states for its data.
        damaged: int64, the numbers of the records whose data is known not to have it; they are left out.
        verified: whether all data was compared.
        lost: bytes behind the last record of which nothing can be said.
    """

    offsets: np.ndarray
    crcs: np.ndarray
    damaged: np.ndarray
    verified: bool = False
    lost: int = 0

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return not len(self.damaged) and not self.lost


def walk(path: str, file, size: int, skip: bool, progress: Callable[[int], object]) -> Walked:
    """Finds the records of a file of `size` bytes.

    Only headers and footers are looked at, unless damaged records are to be skipped: then all data is compared.

    Args:
        file: what `open_file(path)` returned.
        skip: leave damaged records out, and what lies behind a damaged length. Otherwise that is an error.
        progress: called with the number of bytes done since the last call.

    Raises:
        DataError: a compressed file; a damaged length or a truncated record, unless `skip`.
    """
    _refuse_compressed(path, file.read(0, HEADER.size))
    offsets, checksums, damaged, at = array.array("q"), array.array("I"), array.array("q"), 0
    while at < size:
        stop = _walk_chunk(file, at, size, offsets, checksums, damaged if skip else None)
        progress(stop - at)
        if stop == at:
            break
        at = stop
    if at < size and not skip:
        raise _damage(path, file.read(at, HEADER.size), at, size)
    progress(size - at)
    offsets.append(at)
    stated = crcs_of(np.frombuffer(checksums, np.uint32))
    return Walked(np.frombuffer(offsets, np.int64), stated, np.array(damaged, np.int64), skip, size - at)


def _walk_chunk(file, begin: int, size: int, offsets, checksums, damaged) -> int:
    """Appends the records that lie in the chunk at `begin`; where a longer one lies, that one alone.

    Args:
        damaged: gets the numbers of those whose data is damaged; None if data is not to be compared.

    Returns: where the next record begins; `begin` if the one there has no sound length or is not all there.
    """
    buffer, at = file.read(begin, _CHUNK), 0
    while at + HEADER.size <= len(buffer):
        length = read_length(buffer, at)
        if length is None or begin + at + length + OVERHEAD > size:
            break
        footer = at + HEADER.size + length
        if footer + FOOTER.size > len(buffer):
            if at:
                break
            buffer = file.read(begin, footer + FOOTER.size)
        (stored,) = FOOTER.unpack_from(buffer, footer)
        if damaged is not None and checksum(buffer[at + HEADER.size : footer]) != stored:
            damaged.append(len(offsets))
        offsets.append(begin + at)
        checksums.append(stored)
        at = footer + FOOTER.size
    return begin + at


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
    elif at == 0:
        raise DataError(f"{path}: no record begins at byte 0: it is damaged, or no TFRecord file. Check the path.")
    else:
        problem = f"the length of the record at byte {at} is damaged, so that none behind it can be found"
    return DataError(f'{path}: {problem}. Write the file again, or leave out what is damaged with damaged="skip".')
