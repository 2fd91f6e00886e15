"""Speed of `from_arrays`, and of a start late in the training, as ratios in one run; above 1 is faster.

python tests/benchmarks/arrays.py
"""

import numpy as np
import tensorflow as tf
from side_by_side import HEADER, row

from tfdist.batching import Share
from tfdist.data import from_arrays

BATCH = 256
LATE = 1_000_000


def read(dataset, batches):
    for _ in dataset.take(batches):
        pass


def rates():
    """`from_arrays` against `from_tensor_slices`, for rows of several sizes."""
    for width, rows, batches in ((1, 400_000, 2000), (64, 200_000, 2000), (784, 60_000, 1500), (12_288, 4_000, 150)):
        x, y = np.zeros((rows, width), np.float32), np.zeros(rows, np.int64)
        stock = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH).prefetch(tf.data.AUTOTUNE)
        for order, shuffle in (("in order", False), ("ours shuffled, theirs in order", True)):
            ours = from_arrays(x, y, shuffle=shuffle).worker_batches(BATCH, Share(), repeat=True)
            name = f"{rows} rows of {width} floats, {order}"
            yield row(name, lambda o=ours, b=batches: read(o, b), lambda s=stock, b=batches: read(s, b))


def late_starts():
    """The first batch at step 0 against the one at step 1,000,000, of an epoch of 2 million steps, and `skip`."""
    x = np.zeros((2 * LATE, 1), np.float32)
    data, stock = from_arrays(x, shuffle=True), tf.data.Dataset.from_tensor_slices(x)

    def first(step):
        return lambda: next(iter(data.worker_batches(1, Share(), first_step=step)))

    def skip():
        next(iter(stock.skip(LATE).batch(1)))

    yield row(f"first batch at step {LATE} against step 0", first(LATE), first(0), rounds=31)
    yield row(f"first batch at step {LATE} against skip({LATE}) of data in order", first(LATE), skip)


if __name__ == "__main__":
    print(HEADER)
    for rows in (rates(), late_starts()):
        for line in rows:
            print(line, flush=True)
