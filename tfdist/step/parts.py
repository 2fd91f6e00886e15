"""The rows of a replica and of a micro-batch, cut in the graph from the rows that its worker has read."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfdist.batching import Share, part_start


class Rows(NamedTuple):
    """Counts of rows of a global batch: int64 scalars.

    Attributes:
        all: rows of all workers together.
        own: rows of this worker.
    """

    all: tf.Tensor
    own: tf.Tensor


class Part(NamedTuple):
    """Some rows of a global batch, on one replica.

    Attributes:
        data: nested tensors with the part's rows; one repeated row if the part has none.
        rows: float32 scalar, the part's real rows; 0 if its row is a repeated one.
        weight: float32 scalar, `rows` over the rows of the global batch.
        ratio: float32 scalar, the rows of the global batch over `rows` (over 1 if `rows` is 0).
    """

    data: Any
    rows: tf.Tensor
    weight: tf.Tensor
    ratio: tf.Tensor


class ReplicaBatch(NamedTuple):
    """A replica's rows of a global batch: `data` as in `Part`, and int64 counts of real rows."""

    data: Any
    rows: tf.Tensor
    global_rows: tf.Tensor

    @property
    def weight(self):
        """float32 scalar, the replica's share of the global batch."""
        return tf.cast(self.rows, tf.float32) / tf.cast(self.global_rows, tf.float32)

    def part(self, index: int = 0, parts: int = 1) -> Part:
        """Micro-batch `index` of `parts`."""
        start, stop = part_start(self.rows, parts, index), part_start(self.rows, parts, index + 1)
        data = self.data if parts == 1 else _rows_or_last(self.data, start, stop, self.rows)
        rows, total = tf.cast(stop - start, tf.float32), tf.cast(self.global_rows, tf.float32)
        return Part(data, rows, rows / total, total / tf.maximum(rows, 1.0))


def replica_batch(batch, rows: Rows, share: Share) -> ReplicaBatch:
    """The rows of the replica that runs this, out of its worker's `batch`, of which `rows.own` are real.

    The rows are cut on the CPU, so that a GPU receives its own rows only.
    """
    if share.replicas_per_worker == 1:
        return ReplicaBatch(batch, rows.own, rows.all)
    replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int64)
    start, stop = share.replica_bounds(rows.own, replica - share.first_replica)
    return ReplicaBatch(_rows_or_last(batch, start, stop, rows.own), stop - start, rows.all)


def _rows_or_last(data, start, stop, available):
    """Rows `[start, stop)` of every leaf; if there are none, the one row at `start` or the last before it."""
    start = tf.maximum(tf.minimum(start, available - 1), 0)
    stop = tf.maximum(stop, start + 1)
    with tf.device("CPU:0"):
        return tf.nest.map_structure(lambda leaf: None if leaf is None else leaf[start:stop], data)
