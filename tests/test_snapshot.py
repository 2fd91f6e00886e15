"""What is taken of a model, written, read and put back: on one device, and on two logical ones."""

import re

import h5py
import keras
import numpy as np
import pytest
import strategies
import tensorflow as tf

from tfdist.compat import trainer, weights_file
from tfdist.errors import CheckpointError
from tfdist.snapshot.files import Files, read_files
from tfdist.snapshot.metrics import put_metrics, take_metrics
from tfdist.snapshot.variables import digest, named_variables, put, take
from tfdist.testing import run_cluster

X, Y = np.linspace(-1, 1, 64, dtype="float32").reshape(16, 4), np.ones((16, 1), "float32")


class Counting(keras.layers.Layer):
    """Saves a Python number, and has a variable that Keras is not told of."""

    def __init__(self):
        super().__init__()
        self.calls = np.int64(0)
        self.memory = [keras.Variable(np.zeros(2), trainable=False, name="memory")]

    def call(self, x):
        return x

    def save_own_variables(self, store):
        store["calls"] = np.array(self.calls)

    def load_own_variables(self, store):
        self.calls = store["calls"][()]
        self.memory[0].assign([9, 9])


def make_model(units=3, optimizer=keras.optimizers.Adam, dtype=None, compiled=True, layers=(), change=None):
    keras.utils.set_random_seed(0)
    hidden = [keras.layers.Dense(units, dtype=dtype), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    model = keras.Sequential([keras.Input((4,)), *hidden, *layers, keras.layers.Dense(1)])
    if change:
        change(model)
    if compiled:
        model.compile(optimizer(), "mse", metrics=["mae"])
        trainer.build(model, (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))))
    return model


def loss_scaled():
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.9, use_ema=True))


def train(model, steps=2):
    for _ in range(steps):
        model.train_on_batch(X, Y)


def arrays(values):
    return {name: np.array(weights_file.as_array(value)) for name, value in values.entries.items()}


def datasets(path):
    """`{name: (value, attributes of its group)}` of a file, each name of a dataset on its own."""
    found = {}

    def walk(group, prefix):
        for key, item in group.items():
            if isinstance(item, h5py.Group):
                walk(item, f"{prefix}{key}/")
            else:
                found[prefix + key] = item[()].tobytes(), item.dtype, item.attrs.get("dtype"), dict(group.attrs)

    with h5py.File(path) as file:
        walk(file, "")
    return found


def save(model, folder, tree=None):
    Files.of(take(model), tree).write(str(folder))


def restore(model, folder):
    with read_files(str(folder)) as (stored, tree):
        put(model, stored)
    return tree


@pytest.mark.parametrize(
    "optimizer", [keras.optimizers.Adam, keras.optimizers.SGD, loss_scaled, keras.optimizers.Adafactor]
)
def test_all_variables_come_back_bit_for_bit(tmp_path, optimizer):
    model = make_model(optimizer=optimizer, layers=[Counting()])
    train(model)
    before = digest(model)
    save(model, tmp_path)
    train(model)
    assert digest(model) != before
    restore(model, tmp_path)
    assert digest(model) == before
    other = make_model(optimizer=optimizer, layers=[Counting()])
    restore(other, tmp_path)
    assert digest(other) == before


def test_a_restored_model_trains_on_as_the_other(tmp_path):
    model, other = make_model(), make_model()
    train(model)
    save(model, tmp_path)
    restore(other, tmp_path)
    for one in (model, other):
        one.layers[2].seed_generator.state.assign([5, 6])  # both draw the next mask
        train(one)
    assert arrays(take(model)).keys() == arrays(take(other)).keys()
    np.testing.assert_equal(arrays(take(other)), arrays(take(model)))


def test_names_are_those_of_keras_and_no_variable_is_left_out_or_twice():
    model = make_model(optimizer=loss_scaled, layers=[Counting()])
    named = named_variables(model)
    assert named["layers/dense/vars/0"] is model.layers[0].kernel
    variables = [*model.variables, *model.optimizer.variables, model.layers[3].memory[0]]
    metrics = {id(variable) for variable in model.metrics_variables}
    expected = {id(variable) for variable in variables} - metrics
    others = [variable.path for variable in named.values() if id(variable) not in expected]
    assert len({id(variable) for variable in named.values()}) == len(named) == len(expected) + len(others)
    assert len(others) == 1  # the state of the generator behind `seed=None`
    assert "seed_generator_state" in others[0]


def scatter(variable):
    variable.scatter_nd_update([[0]], [7 * tf.ones(variable.shape[1:])])


UPDATES = {
    "assign": lambda variable: variable.assign(tf.zeros_like(variable)),
    "add": lambda variable: variable.assign_add(tf.ones_like(variable)),
    "scatter": scatter,
    "slice": lambda variable: variable[0].assign(9 * tf.ones(variable.shape[1:])),
}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("earlier", [None, *UPDATES])
def test_what_was_taken_does_not_change_with_the_variable(update, earlier):
    model = make_model()
    if earlier:
        UPDATES[earlier](model.layers[0].kernel.value)
    values = take(model)
    before = arrays(values)
    for variable in model.weights:
        UPDATES[update](variable.value)
    np.testing.assert_equal(arrays(values), before)
    assert any((variable.numpy() != before[name]).any() for name, variable in named_variables(model).items())


@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, loss_scaled, keras.optimizers.Ftrl])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_what_was_taken_does_not_change_with_training(optimizer, jit_compile):
    model = make_model(optimizer=optimizer)
    model.compile(model.optimizer, "mse", jit_compile=jit_compile)
    train(model)
    values = take(model)
    before = arrays(values)
    train(model)
    np.testing.assert_equal(arrays(values), before)


def test_taking_copies_nothing():
    model = make_model()
    kernel = weights_file.as_array(take(model).entries["layers/dense/vars/0"])
    now = weights_file.as_array(model.layers[0].kernel.value.read_value())
    assert np.shares_memory(kernel, now)


@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, loss_scaled])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_file_is_the_one_that_keras_writes(tmp_path, optimizer, dtype):
    model = make_model(optimizer=optimizer, dtype=keras.DTypePolicy(dtype), layers=[Counting()])
    train(model)
    save(model, tmp_path)
    model.save_weights(tmp_path / "of_keras.weights.h5")
    ours, of_keras = datasets(tmp_path / "model.weights.h5"), datasets(tmp_path / "of_keras.weights.h5")
    assert {name: ours[name] for name in of_keras} == of_keras
    assert all(name.startswith("tfdist/") for name in ours.keys() - of_keras.keys())


@pytest.mark.parametrize("compiled", [True, False])
def test_stock_keras_loads_the_weights(tmp_path, compiled):
    model = make_model()
    train(model)
    save(model, tmp_path)
    other = make_model(compiled=compiled)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_equal(other.get_weights(), model.get_weights())
    if compiled:
        assert other.optimizer.iterations.numpy() == 2


def low_rank(model):
    model.layers[0].enable_lora(2)
    model.layers[0].lora_kernel_b.assign(np.ones((2, 3)))


def quantised(model):
    model.layers[0].quantize("int8")


@pytest.mark.parametrize("change", [low_rank, quantised])
def test_layers_that_compute_what_they_save(tmp_path, change):
    model, other, stock = [make_model(change=change) for _ in range(3)]
    train(model)
    before, expected = digest(model), model.predict(X, verbose=0)
    save(model, tmp_path)
    restore(other, tmp_path)
    assert digest(other) == before
    stock.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(stock.predict(X, verbose=0), expected, rtol=1e-5)


def test_what_a_layer_saves_beside_variables_comes_back_before_them(tmp_path):
    model, other = make_model(layers=[Counting()]), make_model(layers=[Counting()])
    model.layers[3].calls = np.int64(5)
    model.layers[3].memory[0].assign([1, 2])
    save(model, tmp_path)
    restore(other, tmp_path)
    assert other.layers[3].calls == 5
    np.testing.assert_equal(other.layers[3].memory[0].numpy(), [1, 2])


def with_sgd():
    return make_model(optimizer=lambda: keras.optimizers.SGD(momentum=0.9))


def deeper(layers):
    return lambda: make_model(layers=[keras.layers.Dense(3) for _ in range(layers)])


IS = r"dense.*/kernel \(layers/dense/vars/0\) is"
MISFITS = {
    "shape": (lambda: make_model(5), f"of another shape or type: .*{IS} float32 .4, 5. in the model and float32 .4, 3"),
    "type": (lambda: make_model(dtype=keras.DTypePolicy("float64")), f"{IS} float64 .4, 3. in the model and float32 "),
    "missing": (deeper(1), r"not in the checkpoint: .*\(layers/dense_2/vars/0\)"),
    "extra": (with_sgd, r"6 not in the model: adam.*_momentum \(optimizer/vars/8\)"),
    "optimizer": (with_sgd, r"of another optimizer: .*(?:sgd|SGD).*_momentum \(optimizer/vars/\d\) is adam.* there"),
    "many": (deeper(9), r"not in the checkpoint: .* and \d+ more; "),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_another_model_is_refused_with_what_differs_and_stays_as_it_is(tmp_path, case):
    save(make_model(), tmp_path)
    make, message = MISFITS[case]
    other = make()
    before = digest(other)
    with pytest.raises(CheckpointError) as raised:
        restore(other, tmp_path)
    assert re.search(message, str(raised.value))
    assert "Build the model and its optimizer as they were" in str(raised.value)
    assert digest(other) == before


def test_facts_name_each_array_of_the_file(tmp_path):
    files = Files.of(take(make_model(dtype=keras.DTypePolicy("bfloat16"))), {"a": np.zeros((0, 2), "int8")})
    files.write(str(tmp_path))
    with weights_file.opened(str(tmp_path / "model.weights.h5")) as stored:
        found = {name: {"shape": list(array.shape), "dtype": array.dtype} for name, array in stored.items()}
    assert files.facts() == found
    assert found["layers/dense/vars/0"] == {"shape": [4, 3], "dtype": "bfloat16"}


def test_metrics_go_on_counting():
    model, other = make_model(), make_model()
    train(model)
    put_metrics(other, take_metrics(model), first_replica=0)
    assert other.get_metrics_result() == model.get_metrics_result()


def test_counts_of_more_replicas_are_added():
    model, other = make_model(), make_model()
    train(model)
    [counts] = take_metrics(model)
    put_metrics(other, [counts, counts, counts], first_replica=0)
    for one, three in zip(counts, take_metrics(other)[0]):
        np.testing.assert_allclose(three, 3 * one)


def test_counts_of_other_metrics_are_left_out(caplog):
    model, other = make_model(), make_model()
    train(model)
    before = take_metrics(other)
    put_metrics(other, [take_metrics(model)[0][:-1]], first_replica=0)
    np.testing.assert_equal(take_metrics(other), before)
    assert "not those of the checkpoint" in caplog.text


def on_two_devices(folder):
    """What is found on two logical devices: see the test below."""
    strategy = strategies.make("mirrored")
    with strategy.scope():
        model = make_model()
    kernel = model.layers[0].kernel.value
    copies = strategy.experimental_local_results(kernel)
    values = take(model)
    before, equal = arrays(values), digest(model)
    counts = take_metrics(model)
    for number, replica in enumerate(counts):
        replica[0] += number + 1
    put_metrics(model, counts, first_replica=0)
    counted = [[float(value) for value in of] for of in take_metrics(model)]
    put_metrics(model, counts[:1], first_replica=0)
    spread = [[float(value) for value in of] for of in take_metrics(model)]
    save(model, folder)
    for update in UPDATES.values():
        for copy in copies:
            update(copy)
    kept = all((before[name] == value).all() for name, value in arrays(values).items())
    copies[1].assign_add(tf.ones_like(copies[1]))
    apart = digest(model)
    restore(model, folder)
    return {
        "kept": kept, "equal": equal, "apart": apart, "restored": digest(model),
        "counted": counted, "spread": spread, "devices": len(copies),
    }  # fmt: skip


@pytest.mark.process
def test_on_two_devices_each_copy_is_restored_and_told_apart(tmp_path):
    [found] = run_cluster(on_two_devices, 1, (str(tmp_path),))
    assert found["kept"]
    assert found["devices"] == len(set(found["apart"])) == 2
    assert found["equal"] == found["restored"]
    assert len(set(found["restored"])) == 1
    assert [of[0] for of in found["counted"]] == [1, 2]
    assert [of[0] for of in found["spread"]] == [1, 0]
    one = make_model()
    restore(one, tmp_path)
    assert digest(one) == found["restored"][:1]
