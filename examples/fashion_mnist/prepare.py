"""Makes TFDS's data set `fashion_mnist` without a network, from the IDX files of Debian's `dataset-fashion-mnist`.

python -m examples.fashion_mnist.prepare [--data_dir=DIR] [--idx_dir=DIR] [--file_format=array_record|tfrecord]

70,000 images, 60,000 to train on and 10,000 to test, in files of 43 MB; takes half a minute. What is there already
stays, in whatever format.
"""

import gzip
import pathlib
import shutil
import sys
import tempfile

import tensorflow_datasets as tfds
from absl import app, flags

from tfdist.errors import DataError, TfdistError

IDX_DIR = "/usr/share/datasets/fashion-mnist"

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Where TFDS keeps its data sets; by default TFDS's own choice.")
_IDX_DIR = flags.DEFINE_string("idx_dir", IDX_DIR, "Where the four gzipped IDX files lie.")
_FILE_FORMAT = flags.DEFINE_enum("file_format", "array_record", ["array_record", "tfrecord"], "TFDS's format of files.")


def prepare(data_dir: str | None = None, idx_dir: str = IDX_DIR, file_format: str = "array_record") -> pathlib.Path:
    """Builds the data set unless it is there, with a progress bar. Returns: its folder.

    Raises:
        DataError: an IDX file is missing.
    """
    builder = tfds.builder("fashion_mnist", data_dir=data_dir, file_format=file_format)
    if not builder.is_prepared():
        with tempfile.TemporaryDirectory() as scratch:
            split_generators = builder._split_generators
            builder._split_generators = lambda dl_manager: split_generators(_LocalFiles(idx_dir, scratch))
            builder.download_and_prepare()
    return pathlib.Path(builder.data_dir)


class _LocalFiles:
    """Stands in for TFDS's download manager: answers each address with the file of that name, unpacked."""

    def __init__(self, idx_dir, scratch):
        self.idx_dir, self.scratch = pathlib.Path(idx_dir), pathlib.Path(scratch)

    def download_and_extract(self, urls):
        return {key: self._unpacked(url.rpartition("/")[2]) for key, url in urls.items()}

    def _unpacked(self, name):
        packed, unpacked = self.idx_dir / name, self.scratch / pathlib.Path(name).stem
        if not packed.is_file():
            raise DataError(f"{packed} is missing. Run `apt-get install dataset-fashion-mnist`, or give --idx_dir.")
        with gzip.open(packed) as source, open(unpacked, "wb") as target:
            shutil.copyfileobj(source, target)
        return str(unpacked)


def main(argv):
    del argv
    try:
        folder = prepare(_DATA_DIR.value, _IDX_DIR.value, _FILE_FORMAT.value)
    except TfdistError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(f"fashion_mnist lies in {folder}")
    return 0


if __name__ == "__main__":
    app.run(main)
