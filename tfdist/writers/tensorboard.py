"""Metric output for TensorBoard."""

import tensorflow as tf

from tfdist.writers.writer import Writer


class TensorBoardWriter(Writer):
    """Writes scalar summaries into `folder`. TensorBoard itself need not be installed to write them."""

    def __init__(self, folder):
        self.folder, self._writer = folder, None

    def write_scalars(self, step, scalars):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.folder)
        with self._writer.as_default():
            for name, value in scalars.items():
                tf.summary.write(name, tf.constant(value, tf.float32), step=step, metadata=_scalar_metadata())

    def flush(self):
        if self._writer is not None:
            self._writer.flush()

    def close(self):
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _scalar_metadata():
    """What marks a value as a scalar; `tf.summary.scalar` would do the same with TensorBoard installed."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    return metadata
