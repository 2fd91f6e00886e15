"""Why two workers that iterate the same `tf.data.Dataset` might see different elements."""

from collections.abc import Callable, Iterator

import tensorflow as tf

from tfdist.compat.datasets import SEED_INPUTS, bodies_of, seeds_of, source, upstream

_SELECTING = ("FilterDataset", "ParallelFilterDataset", "TakeWhileDataset", "GroupByWindowDataset", "UniqueDataset")
# The inputs that decide how many elements come, or which.
_COUNTS = {
    "BatchDatasetV2": (1,), "DirectedInterleaveDataset": (0,), "PaddedBatchDatasetV2": (1,),
    "ParallelBatchDataset": (1,), "RandomDataset": (0, 1), "RandomDatasetV2": (0, 1), "RangeDataset": (0, 1, 2),
    "RebatchDatasetV2": (1,), "RepeatDataset": (1,), "ShardDataset": (1, 2), "ShuffleDatasetV3": (1, 2, 3),
    "SkipDataset": (1,), "TakeDataset": (1,), "WindowDataset": (1, 2, 3),
}  # fmt: skip
_READERS = ("FixedLengthRecordDatasetV2", "TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset")
_FLATTENING = (
    "FlatMapDataset", "InterleaveDataset", "LegacyParallelInterleaveDatasetV2", "ParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV3", "ParallelInterleaveDatasetV4",
)  # fmt: skip
# `stateful=False` makes another operation of a Python function: the user says that it depends on its arguments alone.
_PYTHON = ("EagerPyFunc", "PyFunc")
# Of a `tf.random.Generator`, whose state each process has for itself.
_GENERATORS = ("RngReadAndSkip", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniform",
               "StatefulUniformFullInt", "StatefulUniformInt", "StatefulRandomBinomial")  # fmt: skip


def differences(graph: tf.compat.v1.GraphDef, options: tf.data.Options) -> list[str]:
    """What lets two iterators of this graph in two processes differ, each with its remedy; empty if nothing does.

    Random values in a `map` are no difference as long as nothing is counted or chosen by them. Python generators are
    not judged.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    loose = options.deterministic is False
    return sorted({message for nodes in bodies_of(graph) for message in _differences(nodes, functions, loose)})


def _differences(nodes: list, functions: dict, loose: bool) -> Iterator[str]:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in SEED_INPUTS and seeds_of(node, by_name) == [0, 0]:
            yield "shuffle, random or sample_from_datasets without a seed: give each a seed"
        elif node.op == "RandomShuffle" and _is_unseeded(node):
            yield "tf.random.shuffle without a seed: use tf.random.experimental.stateless_shuffle"
        elif _order_is_free(node, loose):
            yield "deterministic=False in a parallel map, interleave or in the options: leave it at True"
        elif node.op.startswith("DataServiceDataset"):
            yield "the tf.data service, which hands out elements in any order: read the files directly"
        elif any(map(_is_random, _deciding(node, by_name, functions, _random_inputs))):
            yield "unseeded random numbers that decide which elements stay: use tf.random.stateless_uniform"
        elif any(other.op in _PYTHON for other in _deciding(node, by_name, functions, _python_inputs)):
            yield (
                "Python code (numpy_function, py_function) that decides which elements stay or how many: if that "
                "depends on its arguments alone, use tf.numpy_function(..., stateful=False)"
            )


def _deciding(node, by_name, functions: dict, inputs_of: Callable) -> Iterator:
    """All nodes, in functions too, that decide which elements `node` yields."""
    above = {other.name: other for other in _above(inputs_of(node, functions), by_name)}
    own = {node.name: node} if node.op in _SELECTING else {}
    return _with_functions(above | own, functions)


def _random_inputs(node, functions: dict) -> list[str]:
    """The inputs of a node that must not be random. What is below a filter is taken for what it looks at."""
    if node.op in _SELECTING:
        return list(node.input)
    if node.op in _READERS:
        return [node.input[0]]
    return _python_inputs(node, functions, _random_inputs)


def _python_inputs(node, functions: dict, inside: Callable | None = None) -> list[str]:
    """The inputs of a node that must not come out of Python code."""
    if node.op in _FLATTENING:
        return _inputs_of_flattening(node, functions, inside or _python_inputs)
    return [node.input[position] for position in _COUNTS.get(node.op, ())]


def _inputs_of_flattening(node, functions: dict, inside: Callable) -> list[str]:
    """The inputs of a flat_map or interleave by which its function decides what it yields."""
    function = functions[node.attr["f"].func.name]
    by_name = {other.name: other for other in function.node_def}
    names = {name for other in function.node_def for name in inside(other, functions)}
    read = {source(name) for name in names} | {source(name) for other in _above(names, by_name) for name in other.input}
    arguments = [argument.name for argument in function.signature.input_arg]
    elements = len(arguments) - len(node.attr["Targuments"].list.type)
    positions = {max(0, index - elements + 1) for index, name in enumerate(arguments) if name in read}
    return [node.input[position] for position in sorted(positions)]


def _above(names, by_name) -> list:
    """The nodes that the inputs `names` come from, whatever they are made of."""
    starts = [by_name[source(name)] for name in names if source(name) in by_name]
    return [node for start in starts for node in upstream(start, by_name).values()]


def _is_random(node) -> bool:
    return node.op in _GENERATORS or _is_unseeded(node)


def _is_unseeded(node) -> bool:
    return "seed" in node.attr and "seed2" in node.attr and node.attr["seed"].i == node.attr["seed2"].i == 0


def _order_is_free(node, loose: bool) -> bool:
    deterministic = node.attr["deterministic"].s if "deterministic" in node.attr else b"true"
    sloppy = "sloppy" in node.attr and node.attr["sloppy"].b
    return sloppy or deterministic == b"false" or (loose and deterministic == b"default")


def _with_functions(nodes: dict, functions: dict) -> Iterator:
    """The nodes, and those of all functions that they call, but for Python generators."""
    todo = list(nodes.values())
    called: set[str] = set()
    while todo:
        yield (node := todo.pop())
        values = () if node.op == "GeneratorDataset" else node.attr.values()
        names = {value.func.name for value in values} | {one.name for value in values for one in value.list.func}
        todo += [inner for name in names - called if name in functions for inner in functions[name].node_def]
        called |= names
