"""Data of TensorFlow Datasets, read at random from the files that TFDS prepared."""

from tfdist.data.indexed import Indexed, indexed
from tfdist.data.sequence import SequenceSource
from tfdist.errors import DataError


def from_tfds(source, *, split=None, data_dir=None, as_supervised=True, shuffle=False, seed=0) -> Indexed:
    """The data of a TFDS data set that was prepared in a format with random access.

    Each worker reads and decodes its own examples alone. Records of ArrayRecord files are decoded by TensorFlow, in
    parallel, so that images of several sizes work too if a `.map(fn)` brings them to one size; anything else is decoded
    in Python, one example after the other.

    Args:
        source: what `tfds.data_source(..., split=...)` returns, or any sequence of examples with one structure and one
            shape each; or the name of a data set, which is not downloaded.
        split: a split such as "train" or "train[:80%]", together with a name.
        data_dir: where TFDS keeps its data sets, together with a name.
        as_supervised: elements `(x, y)` by the data set's supervised keys, as TFDS has it; else its dicts.
        shuffle: another order in each epoch, drawn from `seed`; else the order of the source.
        seed: an integer in [0, 2**63).

    Raises:
        DataError: no random access, not prepared, no supervised keys, or no examples.
    """
    if isinstance(source, str):
        source = _open(source, split, data_dir)
    elif split is not None or data_dir is not None:
        raise DataError("split and data_dir go with the name of a data set; this source has its own. Leave them out.")
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__") or isinstance(source, dict):
        raise DataError(
            f"from_tfds({type(source).__name__}): one split with random access is needed, such as "
            'tfds.data_source("fashion_mnist", split="train").'
        )
    keys = _supervised_keys(source) if as_supervised else None
    records = getattr(source, "data_source", None)
    if records is not None and len(records) and isinstance(records[0], bytes):
        return indexed(SequenceSource(records), shuffle, seed).map(_decoder(source, keys))
    data = indexed(SequenceSource(source), shuffle, seed)
    return data if keys is None else data.map(lambda example: _chosen(example, keys))


def _decoder(source, keys):
    def decode(record):
        example = source.dataset_info.features.deserialize_example(record, decoders=source.decoders)
        return example if keys is None else _chosen(example, keys)

    return decode


def _chosen(example, keys):
    """What `keys`, a name or a nest of names, names in the example, in their nesting."""
    if isinstance(keys, tuple):
        return tuple(_chosen(example, key) for key in keys)
    if isinstance(keys, dict):
        return {name: _chosen(example, key) for name, key in keys.items()}
    return example[keys]


def _open(name, split, data_dir):
    import tensorflow_datasets as tfds

    if not isinstance(split, str):
        raise DataError(f'from_tfds("{name}", split={split!r}): name one split, such as split="train".')
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        if builder.is_prepared():
            return builder.as_data_source(split=split)
        problem = f"it is not prepared in {builder.data_dir}."
    except (NotImplementedError, OSError, ValueError) as error:
        problem = str(error).partition("\n")[0]
    raise DataError(
        f'from_tfds("{name}", split="{split}"): {problem} A data set is prepared once, before the training: '
        f'tfds.builder("{name}", file_format="array_record").download_and_prepare().'
    )


def _supervised_keys(source):
    keys = getattr(getattr(source, "dataset_info", None), "supervised_keys", None)
    if keys is None:
        raise DataError(
            "The data set names no supervised keys, so that input and target cannot be told apart. Take "
            'as_supervised=False and say which is which: `.map(lambda example: (example["image"], example["label"]))`.'
        )
    return keys
