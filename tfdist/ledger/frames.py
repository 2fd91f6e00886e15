"""The frames of a ledger's file: what a worker trained on, each with its length and checksum."""

import dataclasses
import json
import pathlib
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfdist.errors import DataError
from tfdist.ledger.packing import pack, unpack

# A mark with the version of the format, the kind, the bytes of the body, the CRC-32 of kind, length and body.
_MARK = b"\xf1TL1"
_HEAD = struct.Struct("<4scII")
_CHECKED = struct.Struct("<cI")
_TRAINED = struct.Struct("<qqqI")


@dataclasses.dataclass(frozen=True)
class Start:
    """A run began at the global step `first_step`; see `Ledger` for the fields. `time`: seconds since 1970."""

    run: int
    first_step: int
    workers: int
    examples: int | None
    dropped: int
    time: float


@dataclasses.dataclass(frozen=True)
class Trained:
    """The steps `[first_step, first_step + steps)` of an epoch were trained."""

    run: int
    epoch: int
    first_step: int
    steps: int
    packed: bytes

    @classmethod
    def make(cls, run: int, epoch: int, first_step: int, counts, ids) -> "Trained":
        """The frame of `ids`, one behind the other, of which step i has `counts[i]`."""
        return cls(run, epoch, first_step, len(counts), pack(counts, ids))

    def between(self, start: int, stop: int) -> np.ndarray:
        """The ids of those of its steps that are in `[start, stop)`: an int64 vector."""
        counts, ids = unpack(self.packed)
        ends = np.concatenate([[0], np.cumsum(counts)])
        first, last = np.clip([start - self.first_step, stop - self.first_step], 0, self.steps)
        return ids[ends[first] : ends[last]]


@dataclasses.dataclass(frozen=True)
class Ended:
    """The epoch was over after `step` steps of the whole training."""

    run: int
    epoch: int
    step: int


Frame = Start | Trained | Ended


def encode(frame: Frame) -> bytes:
    """The bytes of a frame in the file."""
    kind, body = _encode_body(frame)
    checksum = zlib.crc32(body, zlib.crc32(_CHECKED.pack(kind, len(body))))
    return _HEAD.pack(_MARK, kind, len(body), checksum) + body


def read_frames(path: pathlib.Path) -> tuple[list[Frame], int]:
    """The frames of a file, and the bytes that they take: what stands behind them is a frame that a kill tore.

    Raises: DataError if the file cannot be read, or intact frames follow a damaged one.
    """
    data, offset, frames = _read(path), 0, []
    while found := _intact(data, offset):
        kind, body, offset = found
        frames.append(_DECODE[kind](body))
    if _intact_after(data, offset):
        raise DataError(
            f"{path}: damaged at byte {offset}, with intact records behind; only the end of a ledger can be cut "
            "short by a kill. Restore the file, or remove the ledger's folder and train anew."
        )
    return frames, offset


def _read(path):
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}. A ledger is a file that can be read.") from error


def _encode_body(frame):
    if isinstance(frame, Trained):
        return b"T", _TRAINED.pack(frame.run, frame.epoch, frame.first_step, frame.steps) + frame.packed
    kind = b"S" if isinstance(frame, Start) else b"E"
    return kind, json.dumps(dataclasses.asdict(frame), default=int).encode()  # NumPy's integers too


_DECODE: dict[bytes, Callable[[bytes], Any]] = {
    b"S": lambda body: Start(**json.loads(body)),
    b"T": lambda body: Trained(*(*_TRAINED.unpack_from(body), body[_TRAINED.size :])),
    b"E": lambda body: Ended(**json.loads(body)),
}


def _intact(data, offset):
    """The kind, the body and the end of the frame at `offset`; None if there is none that is whole."""
    if offset + _HEAD.size > len(data):
        return None
    mark, kind, length, checksum = _HEAD.unpack_from(data, offset)
    start = offset + _HEAD.size
    body = data[start : start + length]
    if mark != _MARK or len(body) < length:
        return None
    whole = zlib.crc32(body, zlib.crc32(_CHECKED.pack(kind, length))) == checksum
    return (kind, body, start + length) if whole else None


def _intact_after(data, offset):
    while (offset := data.find(_MARK, offset + 1)) >= 0:
        if _intact(data, offset):
            return True
    return False
