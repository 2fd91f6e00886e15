"""Data sets that a process makes after it has done other things, or at once: the same ones all the same.

As a program: their digests, as JSON.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

from tfdist.compat.dataset_digest import digest_of
from tfdist.compat.datasets import graph_of

RANGE = tf.data.Dataset.range


def table_of(words):
    values = tf.lookup.KeyValueTensorInitializer(words, tf.range(len(words), dtype=tf.int64))
    return tf.lookup.StaticHashTable(values, -1)


def looped(i):
    while i < 9:
        i = i * 2 + 1
    if i > 12:
        i -= 1
    return i


def data_sets():
    """By name; made anew in each call."""
    table, noise = table_of([f"word {i}" for i in range(50)]), tf.random.Generator.from_non_deterministic_state()
    scale, variable, flip = tf.constant([1, 2, 3], tf.int64), tf.Variable(3, dtype=tf.int64), keras.layers.RandomFlip()
    lines = tf.data.Dataset.from_tensor_slices(np.array(["b", "a", "c"]))
    return {
        "captured": RANGE(9).map(lambda i: i + scale[1]).batch(2),
        "table": lines.map(table.lookup).batch(2),
        "noise": RANGE(9).map(lambda i: noise.uniform([])).batch(2),
        "variable": RANGE(9).map(lambda i: i + variable).batch(2),
        "keras": RANGE(9).map(lambda i: flip(tf.ones([2, 4, 4, 3]))),
        "interleave": RANGE(4).interleave(lambda i: RANGE(9).map(lambda j: j * i).shuffle(3, seed=1), 2).batch(2),
        "shuffled": RANGE(9).shuffle(4, seed=2).cache().filter(lambda i: i > 1).shuffle(4, seed=3).batch(2),
        "control flow": RANGE(9).map(looped).batch(2),
        "generator": tf.data.Dataset.from_generator(
            lambda: iter([1]), output_signature=tf.TensorSpec((), tf.int64)
        ).batch(2),
        "python": RANGE(9).map(lambda i: tf.numpy_function(np.square, [i], tf.int64)).batch(2),
        "traced": RANGE(9).map(tf.function(lambda i: i * 3)).batch(2),
        "windows": RANGE(9).group_by_window(lambda i: i % 2, lambda _, window: window.batch(2), window_size=2),
        "sampled": tf.data.Dataset.sample_from_datasets([RANGE(4), RANGE(5)], [0.5, 0.5], seed=2).batch(2),
        "lines": tf.data.TextLineDataset(["one", "two"], num_parallel_reads=2).batch(2),
    }


def digests():
    return {name: digest_of(graph_of(dataset)) for name, dataset in data_sets().items()}


if __name__ == "__main__":
    json.dump(digests(), sys.stdout)
