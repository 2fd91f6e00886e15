"""Speed of `from_tfrecords` against `TFRecordDataset`, as ratios in one run; above 1 is faster. And its index.

python tests/benchmarks/records.py
"""

import os
import pathlib
import tempfile
import time
import tracemalloc

import tensorflow as tf
from side_by_side import HEADER, row

from tfdist.batching import Share
from tfdist.data import from_tfrecords
from tfdist.data.records import make_index

BATCH = 256
FILES = 4
RECORDS = 10_000  # in each file
BYTES = 10_000  # as a small JPEG has
MANY = 1_000_000


def write(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def read(dataset):
    for _ in dataset:
        pass


def rates(folder):
    """A whole epoch of 40,000 records of 10 KB, which the machine holds in memory."""
    noise = os.urandom(RECORDS + BYTES)
    paths = [write(folder / f"{i}.tfrecord", (noise[j : j + BYTES] for j in range(RECORDS))) for i in range(FILES)]
    stock = tf.data.TFRecordDataset(paths)
    in_order, shuffled = (from_tfrecords(paths, shuffle=shuffle).worker_batches(BATCH, Share()) for shuffle in (0, 1))
    for name, ours, theirs in (
        ("in order, against TFRecordDataset", in_order, stock),
        ("shuffled, against TFRecordDataset in order", shuffled, stock),
        ("shuffled, against TFRecordDataset with shuffle(10_000)", shuffled, stock.shuffle(10_000)),
    ):
        batches = theirs.batch(BATCH).prefetch(tf.data.AUTOTUNE)
        yield row(name, lambda ours=ours: read(ours), lambda batches=batches: read(batches))


def index(folder):
    """The index of a million records: memory, and seconds to make and to read back."""
    path = write(folder / "many", (b"0123456789" for _ in range(MANY)))
    for what in ("made", "read back"):
        tracemalloc.start()
        start = time.perf_counter()
        made = make_index((path,))
        seconds = time.perf_counter() - start
        held, peak = (size / MANY for size in tracemalloc.get_traced_memory())
        tracemalloc.stop()
        facts = f"{held:.1f} bytes a record, {peak:.1f} meanwhile; {seconds:.2f} s"
        yield f"index of {made.records} records, {what}: {facts}"


def index_in_threads(folder):
    """Walking through all files at a time, against one after the other."""
    paths = sorted(str(path) for path in folder.glob("*.tfrecord"))

    def walk(groups):
        for group in groups:
            for path in group:
                pathlib.Path(f"{folder}/.{path.rpartition('/')[2]}.tfdist-index").unlink(missing_ok=True)
            make_index(tuple(group))

    yield row(
        f"index of {FILES} files of 100 MB at once, against one by one",
        lambda: walk([paths]),
        lambda: walk([[p] for p in paths]),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(HEADER)
        for lines in (rates, index_in_threads, index):
            for line in lines(pathlib.Path(scratch)):
                print(line, flush=True)
