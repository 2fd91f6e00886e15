"""The files and the batch size that the graph of a `tf.data.Dataset` names, and copies with others in their places."""

from typing import NamedTuple

import tensorflow as tf

from tfdist.compat.datasets import copy_of, set_input, source, upstream, value_of
from tfdist.errors import DataError

# The input that has the rows of a batch, and the one that says whether the remainder is dropped.
_BATCHES = {"BatchDatasetV2": (1, 2), "ParallelBatchDataset": (1, 3), "PaddedBatchDatasetV2": (1, -1)}
# What may follow a batch and leaves it one.
_BATCHWISE = (
    "CacheDataset", "CacheDatasetV2", "MapDataset", "ModelDataset", "OptionsDataset", "ParallelMapDatasetV2",
    "PrefetchDataset", "RepeatDataset", "ShuffleDatasetV3", "SkipDataset", "TakeDataset",
)  # fmt: skip
_COUNTING = ("AssertCardinalityDataset", "ShardDataset", "SkipDataset", "TakeDataset")


class FileList(NamedTuple):
    """A vector of strings over whose elements a data set goes: names of files, it may be.

    Attributes:
        reader: the name of the node that goes over them.
        names: the strings, in order.
    """

    reader: str
    names: list[str]


class Batching(NamedTuple):
    """The node that makes the batches: its name, and the rows of a batch."""

    node: str
    rows: int


def string_lists(graph: tf.compat.v1.GraphDef) -> list[FileList]:
    """All vectors of strings, one of which may be the names of the files."""
    by_name = {node.name: node for node in graph.node}
    found = []
    for node in graph.node:
        if node.op == "TensorSliceDataset":
            constants = [by_name[source(name)] for name in node.input]
            vectors = [value_of(constant) for constant in constants if _is_string(constant)]
            found += [FileList(node.name, [_text(name) for name in names]) for names in vectors if names.ndim == 1]
    return found


def batching_of(graph: tf.compat.v1.GraphDef) -> Batching:
    """The last `batch` of the data set.

    Raises:
        DataError: something follows it that changes the rows, something before it counts over all files, it drops the
            remainder, or there is none.
    """
    by_name = {node.name: node for node in graph.node}
    node = by_name[source(next(node for node in graph.node if node.op == "_Retval").input[0])]
    while node.op in _BATCHWISE:
        node = by_name[source(node.input[0])]
    if node.op not in _BATCHES:
        raise DataError(
            f"Policy FILE gives each worker fewer rows, but the data set's batches come out of {node.op}, where the "
            "rows of a batch cannot be changed. End it with `.batch(...)` and what maps whole batches, or hand over a "
            "function of the tf.distribute.InputContext."
        )
    rows, drops = (value_of(by_name[source(node.input[position])]) for position in _BATCHES[node.op])
    _refuse(counting={other.op for other in upstream(node, by_name).values()} & set(_COUNTING), drops=drops)
    return Batching(node.name, int(rows))


def with_files(graph: tf.compat.v1.GraphDef, files: FileList, keep, batching: Batching, rows: int):
    """A graph that reads the files at the positions `keep` alone, with batches of `rows` rows.

    What the data set slices beside the names, such as labels, is cut with them.
    """
    copy = copy_of(graph)
    by_name = {node.name: node for node in copy.node}
    reader = by_name[files.reader]
    for position, name in enumerate(list(reader.input)):
        set_input(copy, reader, position, value_of(by_name[source(name)])[list(keep)])
    set_input(copy, by_name[batching.node], _BATCHES[by_name[batching.node].op][0], tf.constant(rows, tf.int64).numpy())
    return copy


def _is_string(node) -> bool:
    return node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _refuse(counting: set[str], drops) -> None:
    if counting:
        raise DataError(
            f"Policy FILE with {', '.join(sorted(counting))} before the batches: it counts over all files, but each "
            "worker reads its own alone. Leave it out, or leave the policy at AUTO."
        )
    if drops:
        raise DataError(
            "Policy FILE with drop_remainder=True: every worker would drop a remainder of its own. Leave it out: a "
            "partial batch weighs what its rows do."
        )
