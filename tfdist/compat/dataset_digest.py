"""A digest of what the graph of a `tf.data.Dataset` says, whatever its process called the parts of it."""

import graphlib
import hashlib

import tensorflow as tf

from tfdist.compat.datasets import source, value_of

# What a process makes up: names of functions and resources, settings of its devices and threads.
_MADE_UP = ("config", "config_proto", "container", "metadata", "serialized_options", "shared_name")
# The inputs, from the last, that say how fast it goes: as many threads as this machine has cores, say.
_SPEEDS = {
    "ParallelBatchDataset": (-2,),
    "ParallelFilterDataset": (-1,),
    "ParallelInterleaveDatasetV4": (-3, -2, -1),
    "ParallelMapDatasetV2": (-1,),
    "PrefetchDataset": (-1,),
}
# What a process calls a Python function.
_TOKEN = "token"
_TABLE = "LookupTableImportV2"
# Sets what a variable holds: the state of a random generator, say, which workers need not share.
_HOLDS = "AssignVariableOp"


def digest_of(graph: tf.compat.v1.GraphDef, *, in_one_process: bool = False) -> str:
    """The same for two data sets made by the same code from the same values, in this process or in others.

    All operations count, with their attributes and constants, and the contents of lookup tables; numbers of threads and
    the `tf.data.Options` do not.

    Args:
        in_one_process: whether to tell apart what only a process can: what variables hold counts, and each Python
            function (of `numpy_function` and of generators) differs from all others, as objects do.
    """
    return _Digests(graph, in_one_process).of_graph()


class _Digests:
    """Of each node and function, of all that it is made of: names do not count, only what they stand for."""

    def __init__(self, graph: tf.compat.v1.GraphDef, in_one_process: bool):
        self._graph = graph
        self._functions = {function.signature.name: function for function in graph.library.function}
        self._known: dict[str, str] = {}
        self._in_one_process = in_one_process

    def of_graph(self) -> str:
        nodes = self._of_nodes(self._graph.node, {})
        return _hash([nodes[node.name] for node in self._graph.node if node.op == "_Retval"])

    def _of_function(self, name: str) -> str:
        if name not in self._functions:
            return name
        if name not in self._known:
            function = self._functions[name]
            arguments = [argument.name for argument in function.signature.input_arg]
            nodes = self._of_nodes(function.node_def, {name: f"argument {i}" for i, name in enumerate(arguments)})
            returned = [function.ret[output.name] for output in function.signature.output_arg]
            effects = sorted(nodes[name] for name in function.control_ret.values())
            self._known[name] = _hash([len(arguments), [_input(one, nodes) for one in returned], effects])
        return self._known[name]

    def _of_nodes(self, nodes, known: dict[str, str]) -> dict[str, str]:
        by_name = {node.name: node for node in nodes}
        reads = {node.name: self._reads(node, by_name) for node in nodes}
        above = {name: {source(one) for one in inputs} & by_name.keys() for name, inputs in reads.items()}
        known = dict(known)
        for name in graphlib.TopologicalSorter(above).static_order():
            known[name] = self._of_node(by_name[name], reads[name], known, by_name)
        return known

    def _reads(self, node, by_name) -> list[str]:
        above = {name: by_name.get(source(name)) for name in node.input if name[0] == "^"}
        holds = {name for name, other in above.items() if other and other.op == _HOLDS}
        return [name for name in node.input if self._in_one_process or name not in holds]

    def _of_node(self, node, inputs, known, by_name) -> str:
        if node.op == _TABLE:
            return _hash(_rows_of_table(node, by_name))
        data = [_input(name, known) for name in inputs if name[0] != "^"]
        for position in _SPEEDS.get(node.op, ()):
            data[position] = ""
        control = sorted(_input(name, known) for name in inputs if name[0] == "^")
        return _hash([node.op, self._attributes(node), data, control])

    def _attributes(self, node) -> list:
        skipped = {*_MADE_UP} if self._in_one_process else {*_MADE_UP, _TOKEN}
        if "dtype" in node.attr and node.attr["dtype"].type == tf.resource.as_datatype_enum:
            skipped.add("value")
        names = sorted(name for name in node.attr if name[0] != "_" and name not in skipped)
        return [(name, self._attribute(node.attr[name])) for name in names]

    def _attribute(self, value):
        called = [value.func] if value.HasField("func") else list(value.list.func)
        if called:
            return [self._of_function(function.name) for function in called]
        return hashlib.blake2b(value.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def _input(name: str, known: dict[str, str]) -> str:
    """An output of a node or function argument: the digest, and which output."""
    return "".join([known[source(name)], *name.partition(":")[1:]])


def _rows_of_table(node, by_name) -> list:
    """Keys and values, whose order is the table's own affair."""
    constants = [by_name[source(name)] for name in node.input[1:3]]
    if any(constant.op != "Const" for constant in constants):
        return [node.op]
    keys, values = (value_of(constant).tolist() for constant in constants)
    return sorted(zip(keys, values))


def _hash(parts) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
