"""The layout of a TFRecord.

A record is a little-endian uint64 with the length of its data, the checksum of these 8 bytes, the data, and the
checksum of the data. A checksum is a uint32: the data's CRC-32C, rotated and shifted by a constant. Source:
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import struct

import google_crc32c

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
OVERHEAD = HEADER.size + FOOTER.size
_LENGTH_BYTES, _DATA = 8, HEADER.size
_SHIFT = 0xA282EAD8

_crc32c, _header, _footer = google_crc32c.value, HEADER.unpack_from, FOOTER.unpack_from


def checksum(data: bytes) -> int:
    """The checksum that a record has for `data`."""
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + _SHIFT) & 0xFFFFFFFF


def read_length(buffer: bytes, at: int) -> int | None:
    """The length of the data of the record whose header lies at `at`; None if the header is damaged."""
    length, stored = HEADER.unpack_from(buffer, at)
    return length if checksum(buffer[at : at + _LENGTH_BYTES]) == stored else None


def read_data(buffer: bytes, at: int) -> bytes | None:
    """The data of the record at `at`; None if it is damaged or not all there.

    The checksum of the length is not compared: with a wrong length that of the data does not hold.
    """
    stop = at + _DATA + _header(buffer, at)[0]
    if stop + FOOTER.size > len(buffer):
        return None
    data = buffer[at + _DATA : stop]
    crc = _crc32c(data)  # as in checksum(): a call for each record would show
    return data if ((crc >> 15 | crc << 17) + _SHIFT) & 0xFFFFFFFF == _footer(buffer, stop)[0] else None


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
