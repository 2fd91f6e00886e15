"""What the workers tell each other between steps."""

import functools

import numpy as np
import tensorflow as tf

from tfdist.batching import Share
from tfdist.step.reduce import sum_over_replicas

PIECE_BYTES = 64 * 2**20
"""What goes round at a time."""

_WORD = np.dtype("int64")


def gather(strategy, share: Share, values):
    """The `values` of every worker, int64 [workers, k] of int64 [k]. All workers must call it, while tracing alike."""
    if share.workers == 1:
        return values[tf.newaxis]

    def in_replica(values):
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == share.first_replica
        row = tf.one_hot(share.worker, share.workers, dtype=values.dtype)
        return sum_over_replicas([row[:, tf.newaxis] * tf.where(first, values, 0)])[0]

    return first_of(strategy, strategy.run(in_replica, args=(values,)))


def gather_now(strategy, share: Share, values: list[int]) -> np.ndarray:
    """`gather` of integers, outside of a traced function."""
    if share.workers == 1:
        return np.asarray([values], _WORD)
    return _traced_gather(strategy, share)(tf.constant(values, tf.int64)).numpy()


def sum_of_workers(strategy, share: Share, array: np.ndarray) -> np.ndarray:
    """The sum of the arrays of all workers, of one shape [rows, ...] and dtype: int64, float32 or float64."""
    if share.workers == 1:
        return array
    add, rows = _traced_sum(strategy), max(1, PIECE_BYTES // max(1, array[:1].nbytes))
    pieces = [array[i : i + rows] for i in range(0, len(array), rows)]
    summed = [first_of(strategy, add(_own_or_zeros(strategy, share, piece))).numpy() for piece in pieces]
    return np.concatenate(summed) if summed else array


def gather_bytes(strategy, share: Share, data: bytes) -> list[bytes]:
    """The `data` of every worker, by rank. All workers must call it."""
    if share.workers == 1:
        return [data]
    sizes = gather_now(strategy, share, [len(data)])[:, 0].tolist()
    table = np.zeros((share.workers, _words(max(sizes))), _WORD)
    table[share.worker] = _as_words(data, table.shape[1])
    return [row.tobytes()[:size] for row, size in zip(sum_of_workers(strategy, share, table), sizes)]


def share_bytes(strategy, share: Share, data: bytes) -> bytes:
    """The `data` of the chief, on all workers. All of them must call it; what the others hand over does not count."""
    if share.workers == 1:
        return data
    size = int(gather_now(strategy, share, [len(data)])[0, 0])
    words = _as_words(data if share.worker == 0 else b"", _words(size))
    return sum_of_workers(strategy, share, words).tobytes()[:size]


def first_of(strategy, values):
    """The first local replica's of per-replica `values`."""
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], values)


@functools.lru_cache(maxsize=4)
def _traced_gather(strategy, share: Share):
    return tf.function(lambda values: gather(strategy, share, values), autograph=False)


@functools.lru_cache(maxsize=4)
def _traced_sum(strategy):
    # Eagerly it would be slow, and TensorFlow says so on every worker.
    return tf.function(lambda values: strategy.run(_sum_in_replica, args=(values,)), autograph=False)


def _sum_in_replica(value):
    return sum_over_replicas([value])[0]


def _own_or_zeros(strategy, share: Share, array: np.ndarray):
    """This worker's array on its first replica, zeros on its others."""

    def of_replica(context):
        is_first = int(context.replica_id_in_sync_group) == share.first_replica
        return tf.constant(array if is_first else np.zeros_like(array))

    return strategy.experimental_distribute_values_from_function(of_replica)


def _words(size: int) -> int:
    return -(-size // _WORD.itemsize)


def _as_words(data: bytes, words: int) -> np.ndarray:
    return np.frombuffer(data.ljust(words * _WORD.itemsize, b"\0"), _WORD)
