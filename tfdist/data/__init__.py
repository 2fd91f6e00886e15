"""Data that every worker reads its own part of, in an order that no number of workers changes."""

from tfdist.data.arrays import from_arrays
from tfdist.data.base import Data
from tfdist.data.convert import as_data
from tfdist.data.mixture import concatenate, mix
from tfdist.data.service import served
from tfdist.data.streams import from_dataset
from tfdist.data.tfds import from_tfds
from tfdist.data.tfrecords import from_tfrecords

__all__ = [
    "Data",
    "as_data",
    "concatenate",
    "from_arrays",
    "from_dataset",
    "from_tfds",
    "from_tfrecords",
    "mix",
    "served",
]
