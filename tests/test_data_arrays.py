"""Arrays of every kind that Keras takes, nested as the model wants them."""

import operator

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdist.batching import Share
from tfdist.data import Data, as_data, from_arrays, from_dataset
from tfdist.errors import BatchError, DataError


def batches(data, batch_size=4, share=None, **where):
    return [batch for _, _, batch in data.worker_batches(batch_size, share or Share(), **where)]


def test_nested_inputs_keep_their_structure_and_their_rows_together():
    n = 11
    x = {"image": np.arange(n * 6.0).reshape(n, 2, 3), "text": np.array([f"wörd{i}" for i in range(n)])}
    y = [np.arange(n), {"b": np.arange(n, dtype=np.uint8), "none": None}]
    data = from_arrays(x, y, shuffle=True, seed=5)
    for inputs, targets in batches(data, share=Share(1, 2)):
        ids, named = targets
        assert named["none"] is None
        assert named["b"].dtype == tf.uint8
        np.testing.assert_array_equal(ids, tf.cast(named["b"], ids.dtype))
        np.testing.assert_array_equal(inputs["image"][:, 0, 0], 6.0 * ids.numpy())
        assert [text.decode() for text in inputs["text"].numpy()] == [f"wörd{i}" for i in ids.numpy()]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "uint32", "int64", "float16", "complex64"])
def test_dtypes_stay_but_floats_become_those_of_keras(dtype):
    array = np.zeros((5, 2), dtype)
    expected = "float32" if "float" in dtype else dtype
    assert from_arrays(array).element_spec == tf.TensorSpec((None, 2), expected)
    assert batches(from_arrays(array))[0].dtype.name == expected


def test_strings_of_any_form_become_string_tensors():
    expected = [b"a", "é".encode()]
    for strings in (
        np.array(["a", "é"]),
        np.array(expected),
        np.array(["a", "é".encode()], object),
        tf.constant(["a", "é"]),
    ):
        assert batches(from_arrays(strings))[0].numpy().tolist() == expected


def test_batches_have_known_shapes_but_for_the_rows():
    data = from_arrays(np.zeros((9, 3, 2)), np.zeros(9))
    for pipeline in (data, data.map(lambda x, y: (x[0], y))):
        rows, ids, spec = pipeline.worker_batches(4, Share()).element_spec
        assert rows == tf.TensorSpec((), tf.int64)
        assert ids == tf.TensorSpec((None,), tf.int64)
        assert spec == pipeline.element_spec
    assert data.element_spec == (tf.TensorSpec((None, 3, 2)), tf.TensorSpec((None,)))
    assert data.map(lambda x, y: (x[0], y)).element_spec == (tf.TensorSpec((None, 2)), tf.TensorSpec((None,)))


def test_elements_are_packed_as_keras_packs_them():
    x, y, weight = np.zeros((3, 2)), np.ones(3), np.full(3, 2.0)
    for given in [(x,), (x, y), (x, y, weight)]:
        packed = keras.utils.pack_x_y_sample_weight(*given)
        tf.nest.assert_same_structure(from_arrays(*given).element_spec, packed)
        tf.nest.assert_same_structure(as_data(given if len(given) > 1 else x).element_spec, packed)
    two_inputs = as_data((x, x), inputs_only=True).element_spec
    assert len(two_inputs) == 1 and len(two_inputs[0]) == 2
    assert len(as_data([x, x], y).element_spec[0]) == 2


def test_one_array_of_weights_serves_all_outputs():
    y = {"a": np.zeros(3), "b": np.zeros(3)}
    assert set(from_arrays(np.zeros(3), y, np.ones(3)).element_spec[2]) == {"a", "b"}
    apart = from_arrays(np.zeros(3), y, {"a": np.ones(3), "b": None})
    assert batches(apart)[0][2]["b"] is None


def test_maps_see_one_example_and_may_change_everything():
    data = from_arrays(np.arange(10), {"label": np.arange(10) * 2}, shuffle=True)

    def change(x, y):
        if x > 4:  # autograph works in it
            x = -x
        return {"x": tf.stack([x, x])}, tf.strings.as_string(y["label"]), None

    mapped = data.map(change).map(lambda x, y, weight: (x["x"], y, weight))
    assert mapped.element_spec == (tf.TensorSpec((None, 2), tf.int64), tf.TensorSpec((None,), tf.string), None)
    for worker in range(3):
        plain, changed = (batches(each, share=Share(worker, 3)) for each in (data, mapped))
        for (x, y), (pairs, text, weight) in zip(plain, changed, strict=True):
            assert weight is None
            assert pairs[:, 0].numpy().tolist() == [-i if i > 4 else i for i in x.numpy()]
            assert text.numpy().tolist() == [str(i).encode() for i in y["label"].numpy()]


def test_maps_may_return_lists_but_no_ragged_tensors():
    data = from_arrays(np.arange(3)).map(lambda i: [i, {"twice": 2 * i, "shape": (3.0, np.int8(1))}])
    i, other = batches(data)[0]
    assert other["twice"].numpy().tolist() == (2 * i).numpy().tolist() == [0, 2, 4]
    assert other["shape"][1].dtype == tf.int8
    ragged = from_arrays(np.arange(3)).map(lambda i: tf.RaggedTensor.from_row_lengths([i], [1]))
    with pytest.raises(DataError, match="map.. returns RaggedTensorSpec.*to_tensor"):
        ragged.worker_batches(2, Share())


def test_data_that_is_not_the_same_has_another_identity():
    x, y = np.zeros((9, 2)), {"label": np.arange(9), "name": np.array(list("abcdefghi"))}
    data = from_arrays(x, y, shuffle=True)
    assert from_arrays(x.copy(), {"label": np.arange(9), "name": y["name"]}, shuffle=True).identity() == data.identity()
    others = [
        from_arrays(x, y),
        from_arrays(x, y, shuffle=True, seed=1),
        from_arrays(x, {"label": np.arange(9)[::-1], "name": y["name"]}, shuffle=True),
        from_arrays(x, {"label": np.arange(9), "name": y["name"][::-1]}, shuffle=True),
        from_arrays(x[:8], {name: leaf[:8] for name, leaf in y.items()}, shuffle=True),
        from_arrays(x[:, :1], y, shuffle=True),
    ]
    floats = np.random.default_rng(0).normal(size=(50, 3)).astype("float32")
    assert from_arrays(floats[::2]).identity() != from_arrays(floats[1::2]).identity()
    assert from_arrays(floats).identity() == from_arrays(floats * np.float32(1 + 2e-7)).identity()
    assert from_arrays(np.array([b"a", "b"], object)).identity()["examples"] == 2
    assert all(other.identity() != data.identity() for other in others)


def test_data_is_immutable():
    data = from_arrays(np.arange(10))
    data.map(operator.neg)
    assert batches(data)[0].numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(AttributeError):
        data.order = None


def test_a_memory_map_is_read_batch_by_batch(tmp_path):
    np.arange(40.0).reshape(20, 2).tofile(tmp_path / "x")
    x = np.memmap(tmp_path / "x", np.float64, "r", shape=(20, 2))
    data = from_arrays(x, np.arange(20), shuffle=True)
    assert isinstance(data.source.arrays[0], np.memmap)
    for rows, ids in batches(data, share=Share(0, 2)):
        assert rows.dtype == tf.float32
        np.testing.assert_array_equal(rows[:, 1], 2.0 * ids.numpy() + 1)


def test_pandas_frames_are_read_as_keras_reads_them():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    assert from_arrays(frame, frame["a"]).element_spec == (tf.TensorSpec((None, 2)), tf.TensorSpec((None, 1)))


def test_what_is_data_already_stays():
    data = from_arrays(np.zeros(3))
    assert as_data(data) is data
    assert isinstance(as_data(tf.data.Dataset.range(3).batch(2)), Data)
    assert isinstance(as_data(iter([ONES])), Data)
    with pytest.raises(DataError, match="y or sample_weight beside a Indexed"):
        as_data(data, np.zeros(3))


class Loader(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return np.zeros(2)


ONES = np.ones(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_arrays({"a": ONES, "b": np.ones(4)}, ONES), r"differ.*x\['b'\].*4"),
        (lambda: from_arrays(np.ones((0, 3))), "0 examples"),
        (lambda: from_arrays(None), "no array"),
        (lambda: from_arrays(np.float32(3)), "x is the scalar"),
        (lambda: from_arrays([1, 2]), r"x\[0\] is 1, a int.*numpy.asarray"),
        (lambda: from_arrays(ONES, "abc"), "y is 'abc', a str"),
        (lambda: from_arrays(np.array([1, "a"], object)), "dtype object"),
        (lambda: from_arrays(np.array(["2020-01-01"], "M8[D]")), "dtype datetime64"),
        (lambda: from_arrays(tf.ragged.constant([[1], [1, 2]])), "RaggedTensor.*to_tensor"),
        (lambda: from_arrays(tf.sparse.eye(3)), "SparseTensor.*to_dense"),
        (lambda: from_arrays(ONES, sample_weight=ONES), "sample_weight without y"),
        (lambda: from_arrays(ONES, {"a": ONES}, {"b": ONES}), "nested differently"),
        (lambda: from_arrays(ONES, shuffle=True, seed=-1), "seed=-1"),
        (lambda: from_arrays(ONES, seed=None), "seed=None"),
        (lambda: from_arrays(ONES).map("lower"), r"map\('lower'\)"),
        (lambda: as_data((ONES,) * 4), "tuple of 4"),
        (lambda: as_data(Loader()), "a Loader, but must be an array"),
        (lambda: as_data(iter([])), "iterator yields no batch"),
        (lambda: from_dataset(ONES), r"from_dataset\(ndarray\)"),
    ],
)
def test_what_is_no_data_is_refused_with_a_remedy(make, message):
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, None, True])
def test_a_batch_size_is_a_positive_integer(batch_size):
    with pytest.raises(BatchError, match=f"batch_size={batch_size}"):
        from_arrays(ONES).worker_batches(batch_size, Share())
    assert from_arrays(ONES).steps_per_epoch(np.int64(2)) == 2
