"""What a checkpoint holds beside variables: trees of values, the states of callbacks and of random generators."""

import json
import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfdist.compat import callbacks as compat
from tfdist.errors import CheckpointError
from tfdist.snapshot.callback_state import put_callbacks, take_callbacks
from tfdist.snapshot.rng import put_rng, take_rng
from tfdist.snapshot.tree import decode, encode

DTYPES = [np.dtype(name) for name in ("bool", "int8", "uint32", "int64", "float16", "float32", "float64", "complex64")]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
    hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)),
    st.sampled_from(DTYPES).flatmap(hnp.from_dtype),
)  # fmt: skip
KEYS = st.one_of(st.text(), st.integers(), st.booleans(), st.tuples(st.integers(), st.text()))
TREES = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.lists(children), st.lists(children).map(tuple), st.dictionaries(KEYS, children),
        st.dictionaries(st.sampled_from(["$float", "$tuple", "$", "a"]), children),
    ),
    max_leaves=8,
)  # fmt: skip


def same(one, other):
    """Whether two trees are alike in values, bits of arrays and types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


@given(TREES)
def test_a_tree_comes_back_as_it_was(tree):
    text, arrays = encode(tree)
    assert same(decode(text, arrays.__getitem__), tree)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


class Text(str):
    """A text that is more than a text."""


REFUSED = [
    ({"a": [1, {"b": object()}]}, r"\['a'\]\[1\]\['b'\] is a builtins.object"),
    ([np.array(["x"])], r"\[0\] is a numpy.ndarray of <U1"),
    ((np.array([None]),), r"\[0\] is a numpy.ndarray of object"),
    ({1: {2, 3}}, r"\[1\] is a builtins.set"),
    ({frozenset(): 1}, "a key of the state is a builtins.frozenset"),
    (Text("a"), "the state is a .*Text"),
    (lambda: 1, "the state is a builtins.function"),
]


@pytest.mark.parametrize(("tree", "message"), REFUSED)
def test_other_values_are_refused_with_their_place(tree, message):
    with pytest.raises(CheckpointError, match=f"{message}.*Return such values"):
        encode(tree)


class Counts(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.count = {"seen": np.zeros(2)}

    def get_state(self):
        return self.count

    def set_state(self, state):
        self.count = state


def stock(patience=2):
    return [
        keras.callbacks.EarlyStopping("loss", patience=patience, restore_best_weights=True),
        keras.callbacks.EarlyStopping("mae", patience=9, mode="min"),
        keras.callbacks.ReduceLROnPlateau("loss", patience=3),
        keras.callbacks.History(),
        Counts(),
    ]


def fit(callbacks, epochs=3):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0, use_ema=True), "mse", metrics=["mae"])
    model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=epochs, verbose=0, callbacks=callbacks)
    return model


def test_callbacks_find_their_own_state_again():
    before = stock(patience=9)
    model = fit(before)
    before[4].count["seen"] += 1
    states = take_callbacks(before)
    after = stock(patience=9)
    put_callbacks(after, states)
    assert [after[i].wait for i in range(3)] == [before[i].wait for i in range(3)] == [2, 2, 2]
    assert after[0].best == before[0].best
    np.testing.assert_equal(after[0].best_weights, model.get_weights())
    assert after[3].history == before[3].history
    assert after[3].epoch == [0, 1, 2]
    np.testing.assert_equal(after[4].count["seen"], [1, 1])


def test_states_do_not_change_any_more():
    callbacks = stock()
    fit(callbacks, epochs=1)
    states = take_callbacks(callbacks)
    callbacks[3].history["loss"].append(0.0)
    callbacks[4].count["seen"] += 1
    assert len(states["History"]["history"]["loss"]) == 1
    np.testing.assert_equal(states["Counts"]["seen"], [0, 0])


def test_patience_goes_on_where_it_was():
    before = stock()[:1]
    fit(before, epochs=2)
    assert before[0].wait == 1

    class Restore(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            put_callbacks(after, take_callbacks(before))

    after = stock()[:1]
    model = fit([*after, Restore()], epochs=9)
    assert model.history.epoch == [0, 1]  # one epoch before, one more, and the stop needs an epoch above 0
    assert after[0].stopped_epoch == 1


def test_added_removed_and_moved_callbacks_are_told(caplog):
    before = stock(patience=9)
    fit(before)
    after = [
        before[1],
        keras.callbacks.ModelCheckpoint("x.keras"),
        keras.callbacks.LambdaCallback(),
        Counts(),
        Counts(),
    ]
    put_callbacks(after, take_callbacks(before))
    gone, new = [record.message for record in caplog.records if record.name.startswith("tfdist")]
    assert gone.endswith("are not there now: EarlyStopping of loss, History, ReduceLROnPlateau of loss.")
    assert new.endswith("start anew: Counts (2), ModelCheckpoint of val_loss.")
    assert before[1].wait == 2


def test_a_state_that_cannot_be_saved_names_its_callback():
    callback = Counts()
    callback.count = {"file": open}
    with pytest.raises(CheckpointError, match=r"callback Counts: \['file'\] is a builtins\.builtin_function"):
        take_callbacks([keras.callbacks.LambdaCallback(), callback])


def test_a_checkpoint_by_steps_saves_where_it_would_have(tmp_path):
    def checkpoint():
        callback = keras.callbacks.ModelCheckpoint(
            str(tmp_path / "{batch}.weights.h5"), save_freq=3, save_weights_only=True
        )
        callback.set_model(fit([], epochs=1))
        callback.on_epoch_begin(0)
        return callback

    before, after = checkpoint(), checkpoint()
    before.on_train_batch_end(0, {})
    before.on_train_batch_end(1, {})
    put_callbacks([after], take_callbacks([before]))
    after.on_train_batch_end(2, {})
    assert [path.name for path in tmp_path.iterdir()] == ["3.weights.h5"]


FOLLOWS = {"_model", "_params", "model", "params", "monitor_op", "min_delta"}  # from arguments and from the model
ARGUMENTS = {
    "EarlyStopping": ("loss",),
    "ModelCheckpoint": ("x.weights.h5", "loss", 0, True, True),
    "ReduceLROnPlateau": ("loss",),
}


@pytest.mark.parametrize("kind", ["EarlyStopping", "History", "ModelCheckpoint", "ReduceLROnPlateau", "SwapEMAWeights"])
def test_what_training_changes_in_a_callback_is_known(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    callback = getattr(keras.callbacks, kind)(*ARGUMENTS.get(kind, ()))
    made = dict(vars(callback))
    fit([callback])
    changed = {name for name, value in vars(callback).items() if name not in made or made[name] is not value}
    assert changed - FOLLOWS <= set(compat.state_names(callback))


def draws():
    return [random.random(), random.gauss(0, 1), *np.random.normal(size=3), *tf.random.normal([2]).numpy()]  # noqa: NPY002


def test_random_numbers_go_on_as_they_would_have():
    tf.random.set_seed(3)
    draws()
    state = take_rng()
    text, arrays = encode(state)
    expected = draws(), draws()
    random.seed(9)
    np.random.seed(9)  # noqa: NPY002
    tf.random.set_seed(9)
    put_rng(decode(text, arrays.__getitem__))
    assert (draws(), draws()) == expected


def test_the_global_generator_goes_on_only_if_there_is_one():
    without = take_rng() | {"generator": None}
    generator = tf.random.Generator.from_seed(4)
    tf.random.set_global_generator(generator)
    put_rng(without)
    state = take_rng()
    expected = generator.normal([3]).numpy()
    put_rng(state)
    np.testing.assert_equal(tf.random.get_global_generator().normal([3]).numpy(), expected)
