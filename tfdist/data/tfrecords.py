"""Data that lies in TFRecord files."""

from tfdist.data.indexed import Indexed, indexed
from tfdist.data.records import RecordSource, find_files, make_index
from tfdist.errors import DataError


def from_tfrecords(files, *, shuffle=False, seed=0, index_dir=None, damaged="refuse") -> Indexed:
    """The records of TFRecord files, read at random.

    An example is the bytes of one record, a string scalar; parse it in `.map(fn)`, for example with
    `tf.io.parse_single_example`. Where each record begins is found once, in all files at the same time, and kept in a
    file beside each, which is made again when size or time of its file change. Each record is compared with its
    checksums when it is read.

    Args:
        files: a path, a glob, or a list of them, on this machine or on any file system that `tf.io.gfile` reads. They
            are sorted, and a file that is named twice counts once.
        shuffle: another order over all records in each epoch, drawn from `seed`; else the order of the sorted files.
        seed: an integer in [0, 2**63).
        index_dir: a folder for the index; by default beside the files or, if these folders cannot be written,
            `~/.cache/tfdist`.
        damaged: "refuse" makes a damaged record an error that names file and byte: a damaged or cut-off length now,
            damaged data when it is read. "skip" reads all data once, before the training, and leaves out, counted in a
            warning, the damaged records and whatever lies behind a damaged length.

    Raises:
        DataError: no file or record, a compressed file, damage, or an index that cannot be kept in `index_dir`.
    """
    if damaged not in ("refuse", "skip"):
        raise DataError(f'from_tfrecords(damaged={damaged!r}): must be "refuse" or "skip".')
    return indexed(RecordSource(make_index(find_files(files), index_dir, damaged == "skip")), shuffle, seed)
