"""The interface of metric output."""

import abc
import collections
from collections.abc import Mapping


class Writer(abc.ABC):
    """Takes scalars by optimizer step.

    Making a writer touches nothing: what it writes to is opened by the first scalar, so that every worker can make
    one and the chief alone leaves files. A closed writer opens again, and appends. All methods raise OSError where they
    cannot write.
    """

    @abc.abstractmethod
    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the values that hold after `step` optimizer steps of the whole training."""

    def flush(self) -> None:
        """Makes what was written visible to others."""

    def mark(self) -> dict[str, int]:
        """Where the output ends, for a checkpoint; by then it is on disk. Empty where nothing can be taken back."""
        return {}

    def rewind(self, mark: Mapping[str, int]) -> None:
        """Takes back what was written after `mark`, in another run too: the training goes on from there."""

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

    def mark(self):
        return {f"{name}/{key}": end for name, writer in self._named() for key, end in writer.mark().items()}

    def rewind(self, mark):
        for name, writer in self._named():
            own = {key.removeprefix(f"{name}/"): end for key, end in mark.items() if key.startswith(f"{name}/")}
            writer.rewind(own)

    def close(self):
        for writer in self.writers:
            writer.close()

    def _named(self):
        """The writers with names by which another run finds its own, also if writers of other kinds come or go."""
        counts: collections.Counter[str] = collections.Counter()
        for writer in self.writers:
            kind = type(writer).__name__
            yield f"{kind}-{counts[kind]}", writer
            counts[kind] += 1
