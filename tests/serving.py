"""What a trainer does in tests of the tf.data service."""

import numpy as np
import tensorflow as tf

import tfdist
from tfdist.batching import Share
from tfdist.data import from_arrays, served

EXAMPLES, BATCH = 29, 6
READS = [({"repeat": True}, 12), ({"first_step": 8}, 2), ({"first_step": 3, "first_epoch": 1, "repeat": True}, 4)]


def numbers():
    """Partial last batches of 5 rows."""
    return from_arrays(np.arange(EXAMPLES), shuffle=True, seed=3).map(
        lambda i: {"twice": 2 * i, "text": tf.as_string(i)}
    )


def batches(data, share, **where):
    """The batches of one worker, as lists."""
    read = data.worker_batches(BATCH, share, **where)
    for batch in read:
        yield tf.nest.map_structure(lambda leaf: leaf.numpy().tolist(), batch)


def read_served(services):
    """What this worker reads through each service, all of `READS`."""
    cluster = tfdist.read_cluster()
    share = Share(cluster.rank, cluster.num_workers)
    return [
        read_all(served(numbers(), service=service, workers=workers, run=f"of {share.workers}", timeout=60), share)
        for service, workers in services
    ]


def read_all(data, share):
    return [[batch for batch, _ in zip(batches(data, share, **where), range(count))] for where, count in READS]
