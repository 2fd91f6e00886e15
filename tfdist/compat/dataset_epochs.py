"""The epochs of a `tf.data.Dataset`, found without iterating it."""

import functools

import tensorflow as tf

from tfdist.compat.datasets import SEED_INPUTS, copy_of, dataset_of, seeds_of, set_input, source, upstream

_PHILOX = 1
# The input that counts the iterations, and the attribute without which it does not.
_COUNTERS = {"ShuffleDatasetV3": (4, "reshuffle_each_iteration"), "RandomDatasetV2": (2, "rerandomize_each_iteration")}
_CACHES = ("CacheDataset", "CacheDatasetV2")


def epoch_of(dataset: tf.data.Dataset, graph: tf.compat.v1.GraphDef, epoch: int) -> tf.data.Dataset:
    """`dataset`, of which `graph` is the graph, in the state in which it yields that epoch."""
    return fresh_copy(graph, dataset.element_spec, epoch) if counts_iterations(graph) else dataset


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
    copy = copy_of(graph)
    by_name = {node.name: node for node in copy.node}
    cached, repeated = (_all_upstream(copy, by_name, kinds) for kinds in (_CACHES, ("RepeatDataset",)))
    for node in list(copy.node):
        if node.op in _COUNTERS:
            position, attribute = _COUNTERS[node.op]
            counter = by_name[source(node.input[position])]
            counter.op = "DummySeedGenerator"
            counter.attr.clear()
            seeds = seeds_of(node, by_name)
            if epoch and node.attr[attribute].b and seeds != [0, 0] and node.name not in cached:
                for seed_position, seed in zip(SEED_INPUTS[node.op], _epoch_seeds(seeds, epoch)):
                    set_input(copy, node, seed_position, seed)
                # Below a repeat of the user's own the order changes within the epoch too.
                node.attr[attribute].b = node.name in repeated
    return dataset_of(copy, element_spec)


def _epoch_seeds(seeds, epoch: int):
    """The two seeds, int64, that the counter of a shuffle with `seeds` draws for an epoch: Philox's next numbers."""
    key, counter = [tf.bitcast(tf.constant(words, tf.int64), tf.uint64) for words in (seeds[:1], [0, seeds[1]])]
    drawn = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[2 * epoch + 2], key=key, counter=counter, alg=_PHILOX, dtype=tf.uint32
    )
    return drawn.numpy()[-2:].astype("int64")


def _all_upstream(graph: tf.compat.v1.GraphDef, by_name, kinds) -> set[str]:
    below = [set(upstream(node, by_name)) for node in graph.node if node.op in kinds]
    return functools.reduce(set.union, below, set())
