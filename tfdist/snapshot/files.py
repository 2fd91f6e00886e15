"""The files of a checkpoint: `model.weights.h5`, which stock Keras loads too, and `state.json`."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from tfdist.compat import weights_file
from tfdist.compat.weights_file import Stored, as_array
from tfdist.snapshot import tree as trees
from tfdist.snapshot.variables import Values

WEIGHTS = "model.weights.h5"
STATE = "state.json"
_GROUP = "tfdist/state"


class Files(NamedTuple):
    """What a checkpoint's files hold, ready to be written; it does not change while the training goes on.

    Attributes:
        values: of the variables.
        text: of `state.json`.
        arrays: that the text refers to, by their names in the weights file.
    """

    values: Values
    text: str
    arrays: dict[str, Any]

    @classmethod
    def of(cls, values: Values, tree) -> "Files":
        """The variables' `values`, and a `tree` of everything else, whose arrays must not change any more.

        Raises: CheckpointError if the tree holds what cannot be saved; see `tfdist.snapshot.tree`.
        """
        text, arrays = trees.encode(tree)
        return cls(values, text, {f"{_GROUP}/{name}": array for name, array in arrays.items()})

    def facts(self) -> dict[str, dict[str, Any]]:
        """Shape and dtype of every array, by name."""
        arrays = {name: as_array(value) for name, value in self._entries().items()}
        return {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()}

    def write(self, directory: str) -> None:
        """Writes both files into a directory that exists. Any thread may call it."""
        path = os.path.join(directory, WEIGHTS)
        weights_file.write(path, self._entries(), self.values.attributes, self.values.paths)
        with open(os.path.join(directory, STATE), "w", encoding="utf-8") as file:
            file.write(self.text)

    def _entries(self) -> dict[str, Any]:
        return {**self.values.entries, **self.arrays}


@contextlib.contextmanager
def read_files(directory: str) -> Iterator[tuple[dict[str, Stored], Any]]:
    """What `put` takes and the tree. Arrays of variables are read when they are asked for, while the block lasts."""
    with open(os.path.join(directory, STATE), encoding="utf-8") as file:
        text = file.read()
    with weights_file.opened(os.path.join(directory, WEIGHTS)) as stored:
        yield stored, trees.decode(text, lambda name: stored[f"{_GROUP}/{name}"].read())
