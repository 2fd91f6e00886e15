"""TensorFlow's eager context: whether this process has begun to use its devices."""

from tensorflow.python.eager import context as _context


def context_is_initialized() -> bool:
    """Whether an operation, a dataset or a layer was made in this process: it can then join no cluster any more.

    TensorFlow configures its devices and its collective operations once, at the first use. There is no public
    way to ask; `tensorflow.python.eager.context.Context` keeps the flag `_initialized`.
    """
    return bool(_context.context()._initialized)
