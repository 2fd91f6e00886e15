"""Metric output for TensorBoard."""

import contextlib

import tensorflow as tf

from tfdist.writers.writer import Writer


class TensorBoardWriter(Writer):
    """Writes scalar summaries into `folder`. TensorBoard itself need not be installed to write them."""

    def __init__(self, folder):
        self.folder, self._writer = folder, None

    def write_scalars(self, step, scalars):
        with _os_errors(), self._opened().as_default():
            for name, value in scalars.items():
                tf.summary.write(name, tf.constant(value, tf.float32), step=step, metadata=_scalar_metadata())

    def flush(self):
        if self._writer is not None:
            with _os_errors():
                self._writer.flush()

    def close(self):
        writer, self._writer = self._writer, None
        if writer is not None:
            with _os_errors():
                writer.close()

    def _opened(self):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.folder)
        return self._writer


@contextlib.contextmanager
def _os_errors():
    """TensorFlow's errors become OSErrors, as those of other files are."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def _scalar_metadata():
    """What marks a value as a scalar; `tf.summary.scalar` would do the same with TensorBoard installed."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    return metadata
