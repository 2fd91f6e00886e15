"""A disk that is full, for this process."""

import contextlib
import resource


@contextlib.contextmanager
def full_disk(size):
    """While it is entered, no file of this process can grow beyond `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
