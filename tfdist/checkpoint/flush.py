"""Files brought to the disk while they are still being written, so that little is left to wait for at the end."""

import contextlib
import os
import threading
from collections.abc import Iterator

_PAUSE_SECONDS = 0.02


@contextlib.contextmanager
def flushing(directory: str) -> Iterator[None]:
    """Syncs the files of a directory again and again while the block lasts. The last bytes are left to the caller.

    Raises: OSError that a sync met, at the end of the block: the kernel tells of a lost write once, so that a later
        sync would know nothing of it.
    """
    over, errors = threading.Event(), []

    def run():
        try:
            while not over.wait(_PAUSE_SECONDS):
                for name in os.listdir(directory):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        sync(os.path.join(directory, name))
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="flush", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]


def sync(path: str) -> None:
    """Returns once a file, or the names in a directory, are on the disk. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
