"""TFRecord files as sources with random access: their layout, the index of their records, and the reader."""

from tfdist.data.records.files import find_files
from tfdist.data.records.index import Index, make_index
from tfdist.data.records.source import RecordSource, SliceSource

__all__ = ["Index", "RecordSource", "SliceSource", "find_files", "make_index"]
