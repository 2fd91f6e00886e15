"""Data of TensorFlow Datasets, read at random from the files that TFDS prepared."""

import numpy as np

from tfdist.data.indexed import Indexed, indexed
from tfdist.data.records import RecordSource, SliceSource, make_index
from tfdist.data.sequence import SequenceSource
from tfdist.errors import DataError


def from_tfds(source, *, split=None, data_dir=None, as_supervised=True, shuffle=False, seed=0) -> Indexed:
    """The data of a TFDS data set that was prepared as ArrayRecord or TFRecord files.

    Each worker reads and decodes its own examples alone. Records of these files are decoded by TensorFlow, in
    parallel, so that images of several sizes work too if a `.map(fn)` brings them to one size; anything else is decoded
    in Python, one example after the other. TFRecord files get an index, as `from_tfrecords` says.

    Args:
        source: what `tfds.data_source(..., split=...)` returns, or any sequence of examples with one structure and one
            shape each; or the name of a data set, which is not downloaded. TFRecord files need the name.
        split: a split such as "train" or "train[:80%]", together with a name.
        data_dir: where TFDS keeps its data sets, together with a name.
        as_supervised: elements `(x, y)` by the data set's supervised keys, as TFDS has it; else its dicts.
        shuffle: another order in each epoch, drawn from `seed`; else the order of the source.
        seed: an integer in [0, 2**63).

    Raises:
        DataError: no random access, not prepared, no supervised keys, or no examples.
    """
    if isinstance(source, str):
        builder = _prepared(source, split, data_dir)
        if builder.info.file_format.value == "tfrecord":
            keys = _supervised_keys(builder.info) if as_supervised else None
            return indexed(_tfrecords(builder, split), shuffle, seed).map(_decoder(builder.info, None, keys))
        source = _of_split(builder, split, lambda: builder.as_data_source(split=split))
    elif split is not None or data_dir is not None:
        raise DataError("split and data_dir go with the name of a data set; this source has its own. Leave them out.")
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__") or isinstance(source, dict):
        raise DataError(
            f"from_tfds({type(source).__name__}): one split with random access is needed, such as "
            'tfds.data_source("fashion_mnist", split="train").'
        )
    keys = _supervised_keys(getattr(source, "dataset_info", None)) if as_supervised else None
    records = getattr(source, "data_source", None)
    if records is not None and len(records) and isinstance(records[0], bytes):
        return indexed(SequenceSource(records), shuffle, seed).map(_decoder(source.dataset_info, source.decoders, keys))
    data = indexed(SequenceSource(source), shuffle, seed)
    return data if keys is None else data.map(lambda example: _chosen(example, keys))


def _decoder(info, decoders, keys):
    def decode(record):
        example = info.features.deserialize_example(record, decoders=decoders)
        return example if keys is None else _chosen(example, keys)

    return decode


def _chosen(example, keys):
    """What `keys`, a name or a nest of names, names in the example, in their nesting."""
    if isinstance(keys, tuple):
        return tuple(_chosen(example, key) for key in keys)
    if isinstance(keys, dict):
        return {name: _chosen(example, key) for name, key in keys.items()}
    return example[keys]


def _prepared(name, split, data_dir):
    """The builder of a data set that lies ready."""
    import tensorflow_datasets as tfds

    if not isinstance(split, str):
        raise DataError(f'from_tfds("{name}", split={split!r}): name one split, such as split="train".')
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (OSError, ValueError) as error:
        raise _unprepared(name, split, data_dir, _first_line(error)) from None
    if not builder.is_prepared():
        raise _unprepared(name, split, data_dir, f"it is not prepared in {builder.data_dir}.")
    return builder


def _of_split(builder, split, read):
    """What `read` returns for a split of a data set that is prepared. Raises DataError if there is no such split."""
    try:
        return read()
    except NotImplementedError as error:
        raise _unprepared(builder.name, split, None, _first_line(error)) from None
    except (OSError, ValueError) as error:
        raise DataError(
            f'from_tfds("{builder.name}", split="{split}"): {_first_line(error)} {builder.data_dir} has the splits '
            f"{sorted(builder.info.splits)}. Name one of them, or a part such as [:80%] of one."
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _unprepared(name, split, data_dir, problem) -> DataError:
    where = "" if data_dir is None else f'data_dir="{data_dir}", '
    return DataError(
        f'from_tfds("{name}", split="{split}"): {problem} A data set is prepared once, before the training: '
        f'tfds.builder("{name}", {where}file_format="array_record").download_and_prepare().'
    )


def _tfrecords(builder, split) -> SliceSource:
    """The records of a split, or of a part of one, in the order of TFDS."""
    files = _of_split(builder, split, lambda: builder.info.splits[split].file_instructions)
    paths = tuple(dict.fromkeys(str(file.filename) for file in files))
    if not paths:
        raise DataError(f'from_tfds("{builder.name}", split="{split}"): 0 examples. Take a larger part of the split.')
    index = make_index(paths)
    first = dict(zip(paths, index.first.tolist()))
    found = dict(zip(paths, np.diff(index.first).tolist()))
    for file in files:
        if found[str(file.filename)] != file.examples_in_shard:
            raise DataError(
                f"{file.filename} has {found[str(file.filename)]} records, but {file.examples_in_shard} by TFDS's own "
                "account. Prepare the data set again."
            )
    begins = tuple(first[str(file.filename)] + file.skip for file in files)
    return SliceSource(RecordSource(index), begins, tuple(file.take for file in files))


def _supervised_keys(info):
    keys = getattr(info, "supervised_keys", None)
    if keys is None:
        raise DataError(
            "The data set names no supervised keys, so that input and target cannot be told apart. Take "
            'as_supervised=False and say which is which: `.map(lambda example: (example["image"], example["label"]))`.'
        )
    return keys
