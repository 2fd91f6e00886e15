"""Why two workers that iterate the same `tf.data.Dataset` might see different elements."""

from collections.abc import Iterator

import tensorflow as tf

from tfdist.compat.datasets import SEED_INPUTS, bodies_of, seeds_of, upstream

_SELECTING = ("FilterDataset", "ParallelFilterDataset", "TakeWhileDataset", "GroupByWindowDataset", "UniqueDataset")


def differences(graph: tf.compat.v1.GraphDef, options: tf.data.Options) -> list[str]:
    """What lets two iterators of this graph in two processes differ, each with its remedy; empty if nothing does.

    Random values in a `map` are no difference: they change no element's place. Python generators are not judged.
    """
    functions = {function.signature.name: list(function.node_def) for function in graph.library.function}
    loose = options.deterministic is False
    return sorted({message for nodes in bodies_of(graph) for message in _differences(nodes, functions, loose)})


def _differences(nodes: list, functions: dict[str, list], loose: bool) -> Iterator[str]:
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
        elif node.op in _SELECTING and any(map(_is_unseeded, _with_functions(upstream(node, by_name), functions))):
            yield "unseeded random numbers that decide which elements stay: use tf.random.stateless_uniform"


def _is_unseeded(node) -> bool:
    return "seed" in node.attr and "seed2" in node.attr and node.attr["seed"].i == node.attr["seed2"].i == 0


def _order_is_free(node, loose: bool) -> bool:
    deterministic = node.attr["deterministic"].s if "deterministic" in node.attr else b"true"
    sloppy = "sloppy" in node.attr and node.attr["sloppy"].b
    return sloppy or deterministic == b"false" or (loose and deterministic == b"default")


def _with_functions(nodes: dict, functions: dict[str, list]) -> Iterator:
    """The nodes, and those of all functions that they call."""
    todo = list(nodes.values())
    called: set[str] = set()
    while todo:
        yield (node := todo.pop())
        values = node.attr.values()
        names = {value.func.name for value in values} | {one.name for value in values for one in value.list.func}
        todo += [inner for name in names - called for inner in functions.get(name, ())]
        called |= names
