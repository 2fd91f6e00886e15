"""The interface of metric output."""

import abc
from collections.abc import Mapping


class Writer(abc.ABC):
    """Takes scalars by optimizer step.

    Making a writer touches nothing: what it writes to is opened by the first scalar, so that every worker can make
    one and the chief alone leaves files. A closed writer opens again, and appends.
    """

    @abc.abstractmethod
    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the values that hold after `step` optimizer steps of the whole training."""

    def flush(self) -> None:
        """Makes what was written visible to others."""

    def close(self) -> None:
        """Flushes and releases what is open; may be called more than once."""


class ManyWriter(Writer):
    """Writes to all of its writers, in order."""

    def __init__(self, *writers: Writer):
        self.writers = writers

    def write_scalars(self, step, scalars):
        for writer in self.writers:
            writer.write_scalars(step, scalars)

    def flush(self):
        for writer in self.writers:
            writer.flush()

    def close(self):
        for writer in self.writers:
            writer.close()
