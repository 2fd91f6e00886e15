"""The layout of a TFRecord.

A record is a little-endian uint64 with the length of its data, the checksum of these 8 bytes, the data, and the
checksum of the data. A checksum is a uint32: the data's CRC-32C, rotated and shifted by a constant. Source:
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import struct

import google_crc32c
import numpy as np

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
OVERHEAD = HEADER.size + FOOTER.size
_LENGTH_BYTES = 8
_SHIFT = 0xA282EAD8

crc32c = google_crc32c.value


def checksum(data: bytes) -> int:
    """The checksum that a record has for `data`."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _SHIFT) & 0xFFFFFFFF


def crcs_of(checksums: np.ndarray) -> np.ndarray:
    """The CRC-32C of the data that has each of the checksums: uint32 of uint32."""
    rotated = checksums - np.uint32(_SHIFT)
    return rotated >> np.uint32(17) | rotated << np.uint32(15)


def read_length(buffer: bytes, at: int) -> int | None:
    """The length of the data of the record whose header lies at `at`; None if the header is damaged."""
    length, stored = HEADER.unpack_from(buffer, at)
    return length if checksum(buffer[at : at + _LENGTH_BYTES]) == stored else None


def compression(head: bytes) -> str | None:
    """The `compression_type` that the first bytes of a file tell of, "GZIP" or "ZLIB", if its first record is none.

    Sources: RFC 1952, section 2.3.1, and RFC 1950, section 2.2.
    """
    if len(head) >= HEADER.size and read_length(head, 0) is not None:
        return None
    if head[:3] == b"\x1f\x8b\x08":
        return "GZIP"
    is_zlib = head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0
    return "ZLIB" if is_zlib else None
