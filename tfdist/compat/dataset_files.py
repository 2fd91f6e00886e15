"""The files and the batch size that the graph of a `tf.data.Dataset` names, and copies with others in their places."""

import re
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
_CACHES = ("CacheDataset", "CacheDatasetV2")
_DATASET = re.compile(r"Dataset(V\d+)?$")
_REMEDY = "Or hand over a function of the tf.distribute.InputContext, or leave the policy at AUTO."
# What takes each element by itself, so that it does to the elements of some files what it does to them among all. All
# others (take, scan, unique, group_by_window ...) count, group or compare: a list of those would miss the next.
_ELEMENTWISE = (
    "CacheDataset", "CacheDatasetV2", "ConcatenateDataset", "FilterDataset", "FlatMapDataset", "IgnoreErrorsDataset",
    "InterleaveDataset", "LegacyParallelInterleaveDatasetV2", "MapDataset", "ModelDataset", "OptionsDataset",
    "ParallelFilterDataset", "ParallelInterleaveDatasetV2", "ParallelInterleaveDatasetV3",
    "ParallelInterleaveDatasetV4", "ParallelMapDataset", "ParallelMapDatasetV2", "ParseExampleDatasetV2",
    "PrefetchDataset", "PrivateThreadPoolDataset", "MaxIntraOpParallelismDataset", "RepeatDataset",
    "ShuffleAndRepeatDatasetV2", "ShuffleDatasetV3", "UnbatchDataset",
)  # fmt: skip


class FileList(NamedTuple):
    """A vector of strings over whose elements a data set goes: names of files, it may be.

    Attributes:
        reader: the name of the node that goes over them.
        names: the strings, in order.
    """

    reader: str
    names: list[str]


class Batching(NamedTuple):
    """The node that makes the batches: its name, the rows of a batch, and whether a partial one is dropped."""

    node: str
    rows: int
    drops: bool


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
        DataError: something follows it that changes the rows, or there is none.
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
    return Batching(node.name, int(rows), bool(drops))


def rows_per_batch(graph: tf.compat.v1.GraphDef) -> int | None:
    """The rows of a full batch of the data set, or None where they are not seen."""
    try:
        return batching_of(graph).rows
    except DataError:
        return None


def check_divisible(graph: tf.compat.v1.GraphDef, files: FileList, batching: Batching) -> None:
    """Raises DataError for what makes a data set of some of the files another thing than a part of the whole."""
    by_name = {node.name: node for node in graph.node}
    before = upstream(by_name[batching.node], by_name)
    sources = [node for node in before.values() if _is_source(node, by_name)]
    if others := [node.op for node in sources if node.name != files.reader]:
        raise DataError(
            f"Policy FILE, but beside the files the data set reads {', '.join(sorted(others))}, of which every worker "
            "would read all: targets would meet the inputs of other files, or rows would be seen twice. Slice paths "
            f"and targets together, `from_tensor_slices((paths, targets))`. {_REMEDY}"
        )
    between = [node for name, node in before.items() if name not in (files.reader, batching.node)]
    if counting := sorted({node.op for node in between if _counts(node, between, by_name)}):
        raise DataError(
            f"Policy FILE with {', '.join(counting)} before the batches: it counts, groups or compares the elements of "
            f"all files, but each worker reads its own alone. {_REMEDY}"
        )
    if any(value_of(by_name[source(node.input[1])]) for node in graph.node if node.op in _CACHES):
        raise DataError(f"Policy FILE with cache(filename), which all workers would share. Cache in memory. {_REMEDY}")
    if batching.drops:
        raise DataError(
            "Policy FILE with drop_remainder=True: every worker would drop a remainder of its own. Leave it out: a "
            "partial batch weighs what its rows do."
        )


def with_files(graph: tf.compat.v1.GraphDef, files: FileList, keep, batching: Batching, rows: int):
    """A graph that reads the files at the positions `keep` alone, with batches of `rows` rows.

    What the data set slices beside the names, such as labels, is cut with them. What it may have cached in memory, of
    all files, is left to the original.
    """
    copy = copy_of(graph)
    by_name = {node.name: node for node in copy.node}
    reader = by_name[files.reader]
    for position, name in enumerate(list(reader.input)):
        set_input(copy, reader, position, value_of(by_name[source(name)])[list(keep)])
    for node in copy.node:
        if node.op == "CacheDatasetV2":
            cache = by_name[source(node.input[2])]
            cache.op = "DummyMemoryCache"
            cache.attr.clear()
    set_input(copy, by_name[batching.node], _BATCHES[by_name[batching.node].op][0], tf.constant(rows, tf.int64).numpy())
    return copy


def _is_string(node) -> bool:
    return node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _counts(node, between, by_name) -> bool:
    """Whether a data set between the files and the batches is more than what becomes of each element."""
    if node.op in _BATCHES and any(other.op == "UnbatchDataset" for other in between):
        return bool(value_of(by_name[source(node.input[_BATCHES[node.op][1]])]))
    return bool(_DATASET.search(node.op)) and node.op not in _ELEMENTWISE


def _is_source(node, by_name) -> bool:
    """Whether a node is a data set that is made of no other."""
    inputs = [by_name[source(name)] for name in node.input]
    return bool(_DATASET.search(node.op)) and not any(_DATASET.search(other.op) for other in inputs)
