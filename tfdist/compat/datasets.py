"""The graph of a `tf.data.Dataset`, as `tf.data` itself writes it down (`DatasetToGraphV2`).

It holds every transformation, those inside of `interleave` and `flat_map` too, with its seeds. The names of its
operations and of their attributes are not a public interface, but old graphs must stay readable, so they only ever
grow. No Python class of `tf.data` keeps the same facts: `deterministic` of an interleave is stored nowhere else.
"""

import tensorflow as tf

from tfdist.errors import DataError

_IGNORE_EXTERNAL_STATE = 1  # `ExternalStatePolicy`: tables and generators are shared with the copy, without a warning.
_LARGEST_GRAPH = 2**31
# The inputs that are the two seeds.
SEED_INPUTS = {
    "ShuffleDatasetV3": (2, 3),
    "ShuffleDataset": (2, 3),
    "RandomDataset": (0, 1),
    "RandomDatasetV2": (0, 1),
}
# As many elements at a time as the machine has cores: what `interleave` does without a `cycle_length`.
_BY_CORES = -1
_INTERLEAVES = ("InterleaveDataset", "ParallelInterleaveDatasetV4")


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


def dataset_of(graph: tf.compat.v1.GraphDef, element_spec) -> tf.data.Dataset:
    """The data set of a graph."""
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return tf.data.experimental.from_variant(variant, element_spec)


def copy_of(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """A graph to change."""
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph)
    return copy


def bodies_of(graph: tf.compat.v1.GraphDef) -> list[list]:
    """The nodes of the graph, and those of each function in it."""
    return [list(graph.node), *(list(function.node_def) for function in graph.library.function)]


def operations(graph: tf.compat.v1.GraphDef) -> set[str]:
    """The names of all operations, those in functions too."""
    return {node.op for nodes in bodies_of(graph) for node in nodes}


def goes_by_cores(graph: tf.compat.v1.GraphDef) -> bool:
    """Whether the order of an interleave depends on how many cores the process may use."""
    for nodes in bodies_of(graph):
        by_name = {node.name: node for node in nodes}
        interleaves = [node for node in nodes if node.op in _INTERLEAVES]
        cycles = [by_name.get(source(node.input[1 + len(node.attr["Targuments"].list.type)])) for node in interleaves]
        if any(cycle and cycle.op == "Const" and value_of(cycle) == _BY_CORES for cycle in cycles):
            return True
    return False


def seeds_of(node, by_name) -> list[int | None]:
    """The seeds of a shuffle; None for one that is computed inside of a function, which then is not 0."""
    sources = [by_name.get(source(node.input[position])) for position in SEED_INPUTS[node.op]]
    return [int(value_of(seed)) if seed and seed.op == "Const" else None for seed in sources]


def value_of(constant):
    """The value of a constant, as NumPy has it."""
    tensor = constant.attr["value"].tensor
    return tf.io.parse_tensor(tensor.SerializeToString(), tensor.dtype).numpy()


def set_input(graph: tf.compat.v1.GraphDef, node, position: int, value) -> None:
    """Has `node` read the constant `value`, an array, and leaves what it read before to others."""
    constant = graph.node.add(name=f"{node.name}/input_{position}", op="Const")
    tensor = tf.make_tensor_proto(value)
    constant.attr["dtype"].type = tensor.dtype
    constant.attr["value"].tensor.CopyFrom(tensor)
    node.input[position] = constant.name


def source(name: str) -> str:
    """The node of which `name` is an output."""
    return name.lstrip("^").split(":")[0]


def upstream(node, by_name) -> dict:
    """The node and all that it reads, by name."""
    seen, todo = {node.name: node}, [node]
    while todo:
        for name in map(source, todo.pop().input):
            if name in by_name and name not in seen:
                seen[name] = by_name[name]
                todo.append(seen[name])
    return seen
