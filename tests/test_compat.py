"""The contract with Keras's and TensorFlow's private names: a failure here says what a release has changed."""

import gc
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.losses import loss as loss_module
from keras.src.optimizers.base_optimizer import BaseOptimizer

from tests.full_disk import full_disk
from tfdist.compat import callbacks, losses, optimizers, random_state, seeds, trainer, weights_file


def compiled(**args):
    inputs = keras.Input((2,))
    model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(inputs) for name in "ab"})
    model.compile("sgd", {"a": "mse", "b": "mse"}, **args)
    return model


def spec(*names):
    outputs = {name: tf.TensorSpec((None, 1)) for name in names}
    return tf.TensorSpec((None, 2)), outputs


def test_optimizers_distribute_by_the_methods_that_are_replaced():
    sources = {name: inspect.getsource(value) for name, value in vars(TFOptimizer).items() if inspect.isfunction(value)}
    distributing = {name for name, source in sources.items() if "merge_call" in source or ".extended" in source}
    harmless = {"_distributed_tf_update_step", "add_variable_from_reference"}
    assert distributing - harmless == set(optimizers._DISTRIBUTED_METHODS)
    for name in optimizers._DISTRIBUTED_METHODS:
        assert inspect.signature(getattr(TFOptimizer, name)) == inspect.signature(getattr(BaseOptimizer, name))


def test_single_device_updates_put_the_stock_methods_back():
    stock = {name: vars(TFOptimizer)[name] for name in optimizers._DISTRIBUTED_METHODS}
    with optimizers.single_device_updates():
        assert all(vars(TFOptimizer)[name] is vars(BaseOptimizer)[name] for name in stock)
    assert stock == {name: vars(TFOptimizer)[name] for name in stock}


def test_loss_scale_optimizer_offers_the_step_without_merging():
    parameters = inspect.signature(keras.optimizers.LossScaleOptimizer._common_apply).parameters
    assert list(parameters) == list(inspect.signature(keras.optimizers.LossScaleOptimizer._tf_apply).parameters)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size", "mean_with_sample_weight"])
def test_parts_of_a_batch_sum_to_its_loss(reduction):
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    rng = np.random.default_rng(0)
    y_true, y_pred, weight = rng.normal(size=(7, 2)), rng.normal(size=(7, 2)), rng.uniform(size=7)
    whole, parts = float(loss(y_true, y_pred, weight)), [slice(0, 4), slice(4, 7)]
    total = 0.0
    with losses.losses_as_on_one_device():
        counts = [_count(loss, y_true[part], y_pred[part], weight[part]) for part in parts]
        totals = [None if counts[0] is None else sum(counts)]
        for part in parts:
            rows = part.stop - part.start
            with losses.weighing(7 / rows, totals):
                total += float(loss(y_true[part], y_pred[part], weight[part])) * rows / 7
    assert total == pytest.approx(whole, rel=1e-6)


def _count(loss, *arguments):
    with losses.counting() as found:
        loss(*arguments)
    (count,) = found
    return count


def test_losses_do_not_divide_by_replicas_while_a_step_is_traced():
    stock = loss_module.scale_loss_for_distribution
    with losses.losses_as_on_one_device():
        assert loss_module.scale_loss_for_distribution(2.0) == 2.0
    assert loss_module.scale_loss_for_distribution is stock


def test_symbolic_build_makes_all_variables_without_data():
    model = compiled(metrics={"a": ["mae"], "b": ["mae"]})
    trainer.build(model, spec("a", "b"))
    assert model.optimizer.built
    averages = trainer.output_loss_metrics(model)
    assert [len(metric.variables) for metric in averages] == [2, 2]
    known = {id(variable) for variable in model.metrics_variables}
    assert {id(variable) for metric in averages for variable in metric.variables} <= known


def test_an_optimizer_knows_its_variables():
    model = compiled()
    trainer.build(model, spec("a", "b"))
    assert optimizers.trained_variables(model.optimizer) == model.trainable_variables


def test_compiling_again_forgets_traced_steps():
    model = compiled()
    trainer.cache_of(model)["step"] = 1
    assert trainer.cache_of(model) == {"step": 1}
    model.compile("sgd", "mse")
    assert trainer.cache_of(model) == {}


def test_statistics_are_batch_statistics_and_not_frozen_weights():
    frozen = keras.layers.Dense(2, trainable=False)
    model = keras.Sequential([keras.Input((2,)), frozen, keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)])
    assert [v.name for v in trainer.statistics_of(model)] == ["moving_mean", "moving_variance"]


def test_only_seed_generators_are_seeds():
    model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)])
    assert [trainer.is_seed(variable) for variable in model.variables] == [False] * 4 + [True]


def test_overridden_steps_are_recognised():
    class Own(keras.Model):
        def train_step(self, data):
            return {}

    assert trainer.overrides(Own(), "train_step")
    assert not trainer.overrides(Own(), "test_step")
    assert not trainer.overrides(compiled(), "train_step")


def test_a_seed_generator_is_shared_with_a_thread():
    import threading

    generator, found = keras.random.SeedGenerator(3), []

    def ask():
        seeds.share_global_generator(generator)
        found.append(seeds.global_generator())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [generator]


def test_a_layout_names_each_variable_and_reads_none(tmp_path):
    model = compiled()
    trainer.build(model, spec("a", "b"))
    layout = weights_file.collect(model)
    assert layout.entries["layers/dense/vars/0"] is model.get_layer("a").kernel
    assert [layout.entries[f"optimizer/vars/{i}"] for i in range(2)] == model.optimizer.variables
    assert layout.owners[id(model.get_layer("b"))] == "layers/dense_1"
    assert layout.owners[id(model)] == ""
    assert layout.attributes["layers/dense/vars"] == {"name": "a"}
    model.save_weights(tmp_path / "a.weights.h5")
    with weights_file.opened(str(tmp_path / "a.weights.h5")) as stored:
        assert stored.keys() == layout.entries.keys()


def test_an_optimizer_saves_its_variables_by_their_place():
    optimizer, store = keras.optimizers.SGD(), {}
    BaseOptimizer.save_own_variables(optimizer, store)
    for i, variable in enumerate(optimizer.variables):
        np.testing.assert_array_equal(store[str(i)], variable.numpy())
    assert len(store) == len(optimizer.variables)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int8", "bool", "uint32", "float8_e4m3fn"]
)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 2)])
def test_arrays_of_nearly_all_types_are_views_and_all_are_stored_as_they_are(tmp_path, dtype, shape):
    kind = tf.as_dtype(dtype)
    tensor = tf.constant(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2, tf.float32)
    tensor = tf.constant(tensor.numpy().astype(kind.as_numpy_dtype))
    array = weights_file.as_array(tensor)
    assert (array.dtype, array.shape) == (kind.as_numpy_dtype, shape)
    assert not array.flags.owndata or dtype.startswith("float8")
    weights_file.write(str(tmp_path / "a.h5"), {"a/b": tensor, "c": tensor}, {"a": {"x": 1}}, {"a/b": "d"})
    with weights_file.opened(str(tmp_path / "a.h5")) as stored:
        read = stored["a/b"].read()
        assert (stored["c"].shape, stored["c"].dtype, stored["a/b"].note) == (shape, dtype, "d")
    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, shape, array.tobytes())


def test_a_full_disk_is_an_error_again_and_again(tmp_path):
    """HDF5 by itself crashes the process at the next file after one that could not be written."""
    values = {name: np.full(5000, 7.0) for name in "ab"}
    for size in (100, 3000, 50000):
        with full_disk(size), pytest.raises(OSError, match="File too large"):
            weights_file.write(str(tmp_path / "a.h5"), values, {}, {})
        gc.collect()
    weights_file.write(str(tmp_path / "a.h5"), values, {}, {})
    with weights_file.opened(str(tmp_path / "a.h5")) as stored:
        np.testing.assert_array_equal(stored["b"].read(), values["b"])


def test_operation_seeds_go_on():
    tf.random.set_seed(5)
    tf.random.uniform([])
    state = random_state.operation_seeds()
    expected = tf.random.uniform([]).numpy()
    tf.random.set_seed(6)
    random_state.set_operation_seeds(*state)
    assert tf.random.uniform([]).numpy() == expected
    tf.random.set_seed(None)
    assert random_state.operation_seeds() is None


def test_a_global_generator_is_not_made_by_asking():
    generator = tf.random.Generator.from_seed(1)
    tf.random.set_global_generator(generator)
    assert random_state.global_generator() is generator
    random_state.stateful_random_ops.global_generator = None
    assert random_state.global_generator() is None


def test_the_states_of_stock_callbacks_are_attributes_of_theirs(tmp_path):
    arguments = {"ModelCheckpoint": ("a.keras",), "TensorBoard": (str(tmp_path),), "OrbaxCheckpoint": (str(tmp_path),)}
    later = {"epoch", "best_epoch", "_current_epoch"}
    for name in callbacks._STATE:
        kind = getattr(keras.callbacks, name, None)
        if kind is None or name == "OrbaxCheckpoint":  # not in all releases, and needs a library
            continue
        callback = kind(*arguments.get(name, ()))
        missing = [attribute for attribute in callbacks.state_names(callback) if not hasattr(callback, attribute)]
        assert set(missing) <= later, name
        source = inspect.getsource(kind)
        assert all(f"self.{attribute} = " in source for attribute in missing), name
