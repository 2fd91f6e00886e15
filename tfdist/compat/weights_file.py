"""Keras's layout of a weights file: which variable stands where, and files in this layout.

`keras.Model.load_weights` reads a file that is written here. It asks for groups `<path>/vars` with datasets `0`, `1`,
..., and takes no notice of others.

Private names: `saving_lib._save_state`, which walks over a model and hands each of its parts a dictionary-like store;
`saving_lib.H5IOStore`, which it insists on; `BaseOptimizer.save_own_variables`, which stores copies of its variables,
so that they could not be told apart; the set of visited objects, in which a part is entered once it has stored.
"""

import contextlib
import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import h5py
import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.saving import saving_lib

from tfdist.compat.patching import patched


class Layout(NamedTuple):
    """What Keras saves of a model.

    Attributes:
        entries: by the name of a dataset, the Keras variable, or an array or tensor where a layer stores another value.
        attributes: of groups, by their names.
        owners: by `id` of a layer or optimizer, the path under which it stores.
    """

    entries: dict[str, Any]
    attributes: dict[str, dict]
    owners: dict[int, str]


class _Capture(saving_lib.H5IOStore):
    """A store without a file, which remembers what it is handed and in whose name."""

    def __init__(self):
        self.groups, self.metadata, self.owners, self._path = {}, {}, {}, ""

    def __bool__(self):
        return True

    def make(self, path, metadata=None):
        self._path, self.metadata[path] = path, metadata or {}
        return self.groups.setdefault(path, {})

    def visited_by(self):
        """The set that notes the owner of each path."""
        owners, current = self.owners, lambda: self._path

        class Visited(set):
            def add(self, owner):
                owners[owner] = current()
                super().add(owner)

        return Visited()


def collect(model) -> Layout:
    """The layout of a built model. No variable is read, unless a layer computes what it saves."""
    store = _Capture()
    with patched([(BaseOptimizer, "save_own_variables", _save_variables)]):
        saving_lib._save_state(model, store, None, "", store.visited_by())
    entries = {f"{_group(path)}/{key}": value for path, of in store.groups.items() for key, value in of.items()}
    return Layout(entries, {_group(path): of for path, of in store.metadata.items() if of}, store.owners)


def load_computed(model, layout: Layout, stored: "Mapping[str, Stored]") -> None:
    """Has the layers that save other values than their variables' load what is stored.

    Their variables are to be assigned afterwards: a layer may set them to something else while it loads.
    """
    for layer in model._flatten_layers():
        names = _names_of(layer, layout)
        if any(not isinstance(value, keras.Variable) for value in names.values()):
            layer.load_own_variables({name.rpartition("/")[2]: stored[name].read() for name in names})


def _names_of(layer, layout: Layout) -> dict[str, Any]:
    if id(layer) not in layout.owners:
        return {}
    group = _group(layout.owners[id(layer)])
    return {name: value for name, value in layout.entries.items() if name.rpartition("/")[0] == group}


def _save_variables(optimizer, store) -> None:
    for i, variable in enumerate(optimizer.variables):
        store[str(i)] = variable


def _group(path: str) -> str:
    return f"{path}/vars" if path else "vars"


def as_array(value) -> np.ndarray:
    """The values of a host tensor without a copy, as long as its type allows one; of others a copy."""
    if not isinstance(value, tf.Tensor):
        return np.asarray(value)
    if value.dtype.name.startswith("float8"):
        return np.asarray(value.numpy())
    if value.dtype == tf.bfloat16:  # which the buffer protocol does not know
        return np.asarray(memoryview(tf.bitcast(value, tf.uint16))).view(value.dtype.as_numpy_dtype)
    return np.asarray(memoryview(value))


def write(path: str, values: Mapping[str, Any], attributes: Mapping[str, Mapping], notes: Mapping[str, str]) -> None:
    """Writes an HDF5 file.

    Args:
        values: arrays or host tensors by name; the same object under two names is stored once.
        attributes: of groups.
        notes: by name, what `Stored.note` is to be.

    Raises: OSError.
    """
    with _Unfailing(path, "w+") as raw:
        try:
            with h5py.File(raw, "w") as file:
                _fill(file, values, attributes, notes)
        finally:
            if raw.error is not None:
                raise raw.error


class _Unfailing(io.FileIO):
    """A file that keeps its first error: after a write that failed, on a full disk say, HDF5 crashes the process."""

    error: OSError | None = None

    def write(self, data):
        if self.error is None:
            view = memoryview(data).cast("B")
            try:
                while view:
                    view = view[super().write(view) :]
            except OSError as error:
                self.error = error
        return len(data)

    def truncate(self, size=None):
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size


def _fill(file, values, attributes, notes):
    written: dict[int, h5py.Dataset] = {}
    for name, value in values.items():
        if id(value) in written:
            file[name] = written[id(value)]
            continue
        array = as_array(value)
        dataset = written[id(value)] = file.create_dataset(name, data=array)
        if array.dtype.kind == "V":
            dataset.attrs["dtype"] = array.dtype.name
        if name in notes:
            dataset.attrs["path"] = notes[name]
    for name, of in attributes.items():
        file.require_group(name).attrs.update(of)


class Stored(NamedTuple):
    """An array in a file that is open.

    Attributes:
        shape, dtype: of the array; the name of the type.
        note: for people: the variable's own path.
        read: returns it.
    """

    shape: tuple[int, ...]
    dtype: str
    note: str
    read: Any


@contextlib.contextmanager
def opened(path: str) -> Iterator[dict[str, Stored]]:
    """The arrays in a file, by name; to be read while the block lasts."""
    with h5py.File(path, "r") as file:
        found: dict[str, Stored] = {}

        def visit(group, prefix):
            for key, item in group.items():
                name = f"{prefix}{key}"
                if isinstance(item, h5py.Group):
                    visit(item, f"{name}/")
                else:
                    found[name] = _stored(item)

        visit(file, "")
        yield found


def _stored(dataset: h5py.Dataset) -> Stored:
    special = dataset.attrs.get("dtype")
    dtype = np.dtype(tf.as_dtype(special).as_numpy_dtype) if special else dataset.dtype

    def read() -> np.ndarray:
        return dataset[()].view(dtype) if special else np.asarray(dataset[()])

    return Stored(dataset.shape, dtype.name, dataset.attrs.get("path", ""), read)
