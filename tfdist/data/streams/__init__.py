"""The user's own `tf.data.Dataset`, batched by the user with the global batch."""

from tfdist.data.streams.make import from_dataset

__all__ = ["from_dataset"]
