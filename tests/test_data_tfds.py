"""Sources with random access: sequences of examples, and data sets that TFDS prepared."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tfdist.batching import Share
from tfdist.data import from_tfds
from tfdist.errors import DataError


class Sequence:
    """Examples made on demand, read one by one."""

    def __init__(self, example, count=23):
        self.example, self.count = example, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        assert type(index) is int
        return self.example(index)


class Batched(Sequence):
    """The same, read by the batch."""

    def __getitem__(self, index):
        assert index == 0, "beyond a first look, examples are read together"
        return super().__getitem__(index)

    def __getitems__(self, indices):
        return [self.example(index) for index in indices]


def nested(i):
    return {"id": i, "pair": (np.full((2, 3), i, np.uint8), f"text {i}"), "raw": b"\0" * i}


@pytest.mark.parametrize("kind", [Sequence, Batched])
def test_each_worker_reads_its_own_examples_of_a_sequence(kind):
    data = from_tfds(kind(nested), as_supervised=False, shuffle=True, seed=2)
    assert data.element_spec["pair"] == (tf.TensorSpec((None, 2, 3), tf.uint8), tf.TensorSpec((None,), tf.string))
    seen = []
    for worker in range(3):
        for rows, _, batch in data.worker_batches(10, Share(worker, 3)):
            ids = batch["id"].numpy().tolist()
            assert batch["pair"][0].numpy()[:, 1, 2].tolist() == ids
            assert batch["pair"][1].numpy().tolist() == [f"text {i}".encode() for i in ids]
            assert [len(raw) for raw in batch["raw"].numpy()] == ids
            assert int(rows) in (10, 3)
            seen += ids
    assert sorted(seen) == list(range(23))


def test_examples_of_several_shapes_name_themselves():
    data = from_tfds(Sequence(lambda i: np.zeros(2 + i % 2)), as_supervised=False)
    with pytest.raises(tf.errors.OpError, match=r"Examples \[0, 1, 2, 3\] have the shapes \[\(2,\), \(3,\)\]"):
        list(data.worker_batches(4, Share()))


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_toy(tmp_path_factory.mktemp("tfds"), "array_record")


@pytest.fixture(scope="module")
def toy_records(tmp_path_factory):
    return make_toy(tmp_path_factory.mktemp("tfds"), "tfrecord")


def make_toy(data_dir, file_format):
    """A small data set that TFDS itself prepared: images of two heights, labels, and names."""
    features = {
        "image": tfds.features.Image(shape=(None, 4, 1)),
        "label": tfds.features.ClassLabel(num_classes=30),
        "name": tfds.features.Text(),
    }

    def example(i):
        return {"image": np.full((2 + i % 2, 4, 1), i, np.uint8), "label": i, "name": f"name {i}"}

    return tfds.dataset_builders.store_as_tfds_dataset(
        name="toy",
        version="1.0.0",
        features=tfds.features.FeaturesDict(features),
        split_datasets={"train": [(i, example(i)) for i in range(23)], "test": [(i, example(i)) for i in range(4)]},
        data_dir=data_dir,
        file_format=file_format,
    )


def test_records_are_decoded_in_the_graph_so_that_sizes_may_differ(toy):
    data = from_tfds(toy.as_data_source("train"), as_supervised=False, shuffle=True)
    assert data.examples == 23

    def resize(example):
        return tf.image.resize(example["image"], (2, 4)), (example["label"], example["name"])

    data = data.map(resize)
    assert data.element_spec[0] == tf.TensorSpec((None, 2, 4, 1))
    seen = []
    for worker in range(2):
        for _, _, (images, (labels, names)) in data.worker_batches(8, Share(worker, 2)):
            np.testing.assert_array_equal(images[:, 0, 0, 0], labels)
            assert names.numpy().tolist() == [f"name {i}".encode() for i in labels.numpy()]
            seen += labels.numpy().tolist()
    assert sorted(seen) == list(range(23))


def test_decoders_and_parts_of_splits_are_kept(toy):
    source = toy.as_data_source("train[:10]", decoders={"image": tfds.decode.SkipDecoding()})
    data = from_tfds(source, as_supervised=False)
    assert data.examples == 10
    assert data.element_spec["image"] == tf.TensorSpec((None,), tf.string)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda toy: from_tfds(toy.as_data_source("train")), "no supervised keys"),
        (lambda toy: from_tfds(toy.as_data_source()), r"from_tfds\(dict\): one split"),
        (from_tfds, r"one split with random access"),
        (lambda toy: from_tfds(iter([1])), "random access"),
        (lambda toy: from_tfds(toy.as_data_source("train"), split="train"), "split and data_dir go with the name"),
        (lambda toy: from_tfds("fashion_mnist"), 'name one split, such as split="train"'),
        (
            lambda toy: from_tfds("fashion_mnist", split="train", data_dir="/nowhere"),
            'not prepared in /nowhere.*builder\\("fashion_mnist", data_dir="/nowhere", file_format="array_record"\\)',
        ),
        (lambda toy: from_tfds("no_such_set", split="train"), "no_such_set not found"),
        (lambda toy: from_tfds(Sequence(nested, 0), as_supervised=False), "0 examples"),
    ],
)
def test_what_cannot_be_read_at_random_is_refused(toy, make, message):
    with pytest.raises(DataError, match=message):
        make(toy)


@pytest.mark.parametrize("split", ["train", "train[:80%]", "test+train[5:7]", "train[20:]+train[:3]", "all"])
def test_parts_of_tfrecord_splits_are_those_of_tfds(toy_records, split):
    data = from_tfds("toy", split=split, data_dir=toy_records._data_dir_root, as_supervised=False)
    data = data.map(lambda example: (tf.image.resize(example["image"], (2, 4)), example["label"]))
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    stock = toy_records.as_dataset(split=split, read_config=in_order)
    expected = [example["label"] for example in stock.as_numpy_iterator()]
    seen = []
    for _, _, (images, labels) in data.worker_batches(8, Share()):
        np.testing.assert_array_equal(images[:, 0, 0, 0], labels)
        seen += labels.numpy().tolist()
    assert seen == expected


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("nope", "Unknown split 'nope'"),
        ("train[3:3]", r'split="train\[3:3\]"\): 0 examples'),
    ],
)
def test_splits_that_are_none(toy_records, split, message):
    with pytest.raises(DataError, match=message):
        from_tfds("toy", split=split, data_dir=toy_records._data_dir_root, as_supervised=False)
    with pytest.raises(DataError, match="no supervised keys"):
        from_tfds("toy", split="train", data_dir=toy_records._data_dir_root)


def test_a_shard_with_other_records_than_tfds_wrote_is_refused(tmp_path):
    builder = make_toy(tmp_path, "tfrecord")
    [shard] = builder.data_path.glob("*-test.tfrecord*")
    with tf.io.TFRecordWriter(str(shard)) as writer:
        writer.write(b"another one")
    with pytest.raises(DataError, match=f"{shard} has 1 records, but 4 by TFDS's own account"):
        from_tfds("toy", split="test", data_dir=tmp_path, as_supervised=False)
