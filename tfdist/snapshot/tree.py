"""Nested Python values as JSON text, with the arrays in them kept apart."""

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfdist.errors import CheckpointError

_TAG = "$"
_KINDS = "biufcV"  # what a file of arrays can hold: no objects, texts or dates


def encode(tree) -> tuple[str, dict[str, np.ndarray]]:
    """The text of `tree` and the arrays that it refers to, by name; they are not copied.

    Args:
        tree: of dict, list, tuple, str, bytes, int, float (NaN and infinities too), bool, None, NumPy arrays and
            NumPy scalars. Types are kept, those of keys too; tensors and variables become arrays.

    Raises: CheckpointError, with the place in the tree, for anything else: it is never pickled.
    """
    arrays: dict[str, np.ndarray] = {}
    return json.dumps(_encoded(tree, "", arrays), indent=1, allow_nan=False), arrays


def decode(text: str, read: Callable[[str], np.ndarray]) -> Any:
    """The tree, whose arrays `read` returns by name."""
    return _decoded(json.loads(text), read)


def _encoded(value, place: str, arrays: dict):
    if hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)  # a tensor or a variable, which logs may hold
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS and not value.dtype.fields:
        name = str(len(arrays))
        arrays[name] = np.asarray(value)
        return {f"{_TAG}array" if isinstance(value, np.ndarray) else f"{_TAG}scalar": name}
    if type(value) in _CONTAINERS:
        return _CONTAINERS[type(value)](value, place, arrays)
    if type(value) in _LEAVES:
        return _LEAVES[type(value)](value)
    raise CheckpointError(
        f"{place or 'the state'} is {_described(value)}: a checkpoint holds dict, list, tuple, str, bytes, numbers, "
        "None and NumPy arrays. Return such values from `get_state`."
    )


def _described(value) -> str:
    dtype = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
    return f"a {type(value).__module__}.{type(value).__qualname__}{dtype}"


def _same(value):
    return value


def _encoded_float(value: float):
    return value if math.isfinite(value) else {f"{_TAG}float": str(value)}


def _encoded_bytes(value: bytes) -> dict:
    return {f"{_TAG}bytes": base64.b64encode(value).decode()}


def _encoded_tuple(values: tuple, place: str, arrays: dict) -> dict:
    return {f"{_TAG}tuple": _encoded_items(values, place, arrays)}


def _encoded_items(values, place: str, arrays: dict) -> list:
    return [_encoded(value, f"{place}[{i}]", arrays) for i, value in enumerate(values)]


def _encoded_dict(values: dict, place: str, arrays: dict) -> dict:
    if all(type(key) is str and not key.startswith(_TAG) for key in values):
        return {key: _encoded(value, f"{place}[{key!r}]", arrays) for key, value in values.items()}
    pairs = [
        [_encoded(key, f"a key of {place or 'the state'}", arrays), _encoded(value, f"{place}[{key!r}]", arrays)]
        for key, value in values.items()
    ]
    return {f"{_TAG}dict": pairs}


_LEAVES: dict[type, Callable] = {
    **dict.fromkeys([type(None), bool, int, str], _same),
    float: _encoded_float,
    bytes: _encoded_bytes,
}
_CONTAINERS: dict[type, Callable] = {list: _encoded_items, tuple: _encoded_tuple, dict: _encoded_dict}


def _decoded(value, read: Callable):
    if isinstance(value, list):
        return [_decoded(item, read) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(key, content)] = value.items()
        if key.startswith(_TAG):
            return _DECODERS[key[len(_TAG) :]](content, read)
    return {key: _decoded(item, read) for key, item in value.items()}


_DECODERS: dict[str, Callable] = {
    "float": lambda content, _: float(content),
    "bytes": lambda content, _: base64.b64decode(content),
    "tuple": lambda content, read: tuple(_decoded(item, read) for item in content),
    "dict": lambda content, read: {_decoded(key, read): _decoded(item, read) for key, item in content},
    "array": lambda content, read: read(content),
    "scalar": lambda content, read: read(content)[()],
}
