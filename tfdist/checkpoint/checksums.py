"""Size and checksum of a file, by which it is known again."""

import dataclasses
from typing import BinaryIO

import google_crc32c

_PIECE_BYTES = 1 << 20  # the checksum of a piece is computed with the interpreter's lock held


@dataclasses.dataclass(frozen=True)
class FileFacts:
    """Bytes of a file, and their CRC-32C, which finds every flipped bit."""

    size: int
    crc32c: int


def read_facts(stream: BinaryIO) -> FileFacts:
    """The facts of all that `stream` still has to give."""
    size = crc = 0
    while piece := stream.read(_PIECE_BYTES):
        size, crc = size + len(piece), google_crc32c.extend(crc, piece)
    return FileFacts(size, crc)
