"""The graph of a `tf.data.Dataset`: why two workers that iterate it might see different elements, and fresh copies.

The graph is what `tf.data` itself writes down (`DatasetToGraphV2`); it holds every transformation, those inside of
`interleave` and `flat_map` too, with its seeds. The names of its operations and of their attributes are not a public
interface, but old graphs must stay readable, so they only ever grow. No Python class of `tf.data` keeps the same facts:
`deterministic` of an interleave is stored nowhere else.
"""

import functools
from collections.abc import Iterator

import tensorflow as tf

from tfdist.errors import DataError

_IGNORE_EXTERNAL_STATE = 1  # `ExternalStatePolicy`: tables and generators are shared with the copy, without a warning.
_LARGEST_GRAPH = 2**31
_PHILOX = 1
_SEED_INPUTS = {
    "ShuffleDatasetV3": (2, 3),
    "ShuffleDataset": (2, 3),
    "RandomDataset": (0, 1),
    "RandomDatasetV2": (0, 1),
}
# The input that counts the iterations, and the attribute without which it does not.
_COUNTERS = {"ShuffleDatasetV3": (4, "reshuffle_each_iteration"), "RandomDatasetV2": (2, "rerandomize_each_iteration")}
_CACHES = ("CacheDataset", "CacheDatasetV2")
_SELECTING = ("FilterDataset", "ParallelFilterDataset", "TakeWhileDataset", "GroupByWindowDataset", "UniqueDataset")


def graph_of(dataset: tf.data.Dataset) -> tf.compat.v1.GraphDef:
    """The data set's graph, tensors in memory and all (about 4 s per GB of them). Raises DataError above 2 GB."""
    graph = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        external_state_policy=_IGNORE_EXTERNAL_STATE,
        strip_device_assignment=True,
    ).numpy()
    if len(graph) >= _LARGEST_GRAPH:
        raise DataError(
            f"The tf.data.Dataset holds {len(graph) / 2**30:.1f} GiB of arrays, but tf.data writes down graphs of up "
            "to 2 GiB, which it takes to share a data set. Hand the arrays to tfdist.data.from_arrays instead."
        )
    return tf.compat.v1.GraphDef.FromString(graph)


def counts_iterations(graph: tf.compat.v1.GraphDef) -> bool:
    """Whether the order depends on how often the data set was iterated before."""
    return any(node.op in _COUNTERS for node in graph.node)


def fresh_copy(graph: tf.compat.v1.GraphDef, element_spec, epoch: int = 0) -> tf.data.Dataset:
    """A data set of that graph which yields epoch `epoch`, as if it had been iterated that often before.

    A `shuffle` counts the iterators ever made of its data set, and draws another order for each: after a look at the
    first batch on one worker alone, the same data set has different orders on different workers. The counter is a
    resource that a plain copy shares; here each copy makes its own. Iterated again, the copy of epoch 0 goes on to
    epoch 1; that of a later epoch stays.
    """
    copy = tf.compat.v1.GraphDef.FromString(graph.SerializeToString())
    by_name = {node.name: node for node in copy.node}
    cached, repeated = (_all_upstream(copy, by_name, kinds) for kinds in (_CACHES, ("RepeatDataset",)))
    for node in list(copy.node):
        if node.op in _COUNTERS:
            position, attribute = _COUNTERS[node.op]
            counter = by_name[_source(node.input[position])]
            counter.op = "DummySeedGenerator"
            counter.attr.clear()
            seeds = _seeds(node, by_name)
            if epoch and node.attr[attribute].b and seeds != [0, 0] and node.name not in cached:
                _set_seeds(copy, node, _epoch_seeds(seeds, epoch))
                # Below a repeat of the user's own the order changes within the epoch too.
                node.attr[attribute].b = node.name in repeated
    variant = tf.raw_ops.DatasetFromGraph(graph_def=copy.SerializeToString())
    return tf.data.experimental.from_variant(variant, element_spec)


def differences(graph: tf.compat.v1.GraphDef, options: tf.data.Options) -> list[str]:
    """What lets two iterators of this graph in two processes differ, each with its remedy; empty if nothing does.

    Random values in a `map` are no difference: they change no element's place.
    """
    functions = {function.signature.name: list(function.node_def) for function in graph.library.function}
    loose = options.deterministic is False
    bodies = (list(graph.node), *functions.values())
    return sorted({message for nodes in bodies for message in _differences(nodes, functions, loose)})


def _differences(nodes: list, functions: dict[str, list], loose: bool) -> Iterator[str]:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in _SEED_INPUTS and _seeds(node, by_name) == [0, 0]:
            yield "shuffle, random or sample_from_datasets without a seed: give each a seed"
        elif node.op == "RandomShuffle" and _is_unseeded(node):
            yield "tf.random.shuffle without a seed: use tf.random.experimental.stateless_shuffle"
        elif _order_is_free(node, loose):
            yield "deterministic=False in a parallel map, interleave or in the options: leave it at True"
        elif node.op == "GeneratorDataset":
            yield "from_generator: Python code that may yield other elements on each worker"
        elif node.op.startswith("DataServiceDataset"):
            yield "the tf.data service, which hands out elements in any order: read the files directly"
        elif node.op in _SELECTING and any(map(_is_unseeded, _with_functions(_upstream(node, by_name), functions))):
            yield "unseeded random numbers that decide which elements stay: use tf.random.stateless_uniform"


def _is_unseeded(node) -> bool:
    return "seed" in node.attr and "seed2" in node.attr and node.attr["seed"].i == node.attr["seed2"].i == 0


def _order_is_free(node, loose: bool) -> bool:
    deterministic = node.attr["deterministic"].s if "deterministic" in node.attr else b"true"
    sloppy = "sloppy" in node.attr and node.attr["sloppy"].b
    return sloppy or deterministic == b"false" or (loose and deterministic == b"default")


def _seeds(node, by_name) -> list[int | None]:
    """The seeds of a shuffle; None for one that is computed inside of a function, which then is not 0."""
    sources = [by_name.get(_source(node.input[position])) for position in _SEED_INPUTS[node.op]]
    return [
        int(tf.make_ndarray(seed.attr["value"].tensor)) if seed and seed.op == "Const" else None for seed in sources
    ]


def _epoch_seeds(seeds, epoch: int) -> list[int]:
    """The two seeds that the counter of a shuffle with `seeds` draws for an epoch: the next numbers of Philox."""
    key, counter = [tf.bitcast(tf.constant(words, tf.int64), tf.uint64) for words in (seeds[:1], [0, seeds[1]])]
    drawn = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[2 * epoch + 2], key=key, counter=counter, alg=_PHILOX, dtype=tf.uint32
    )
    return drawn.numpy()[-2:].tolist()


def _set_seeds(graph: tf.compat.v1.GraphDef, node, seeds: list[int]) -> None:
    for position, seed in zip(_SEED_INPUTS[node.op], seeds):
        constant = graph.node.add(name=f"{node.name}/seed_{position}", op="Const")
        constant.attr["dtype"].type = tf.int64.as_datatype_enum
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(seed, tf.int64))
        node.input[position] = constant.name


def _source(name: str) -> str:
    return name.lstrip("^").split(":")[0]


def _upstream(node, by_name) -> dict:
    """The node and all that it reads, by name."""
    seen, todo = {node.name: node}, [node]
    while todo:
        for name in map(_source, todo.pop().input):
            if name in by_name and name not in seen:
                seen[name] = by_name[name]
                todo.append(seen[name])
    return seen


def _all_upstream(graph: tf.compat.v1.GraphDef, by_name, kinds) -> set[str]:
    below = [set(_upstream(node, by_name)) for node in graph.node if node.op in kinds]
    return functools.reduce(set.union, below, set())


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
