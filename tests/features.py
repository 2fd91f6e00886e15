"""Trainings that use one feature of Keras each, to be compared with plain Keras on one device.

A feature is a function that returns `(model, (x, y[, sample_weight]) or data set, extra arguments of fit)`. The module
is imported in processes of their own; TensorFlow is first used after the strategy is made.
"""

import keras
import numpy as np
import strategies
import tensorflow as tf

import tfdist

BATCH, EPOCHS, N = 16, 2, 107
OPTIMIZERS = ("RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl", "Lion", "Lamb", "Adafactor")

if keras.version() >= "3.13":  # before, it fails in plain Keras too
    OPTIMIZERS += ("Muon",)


def plain_data(n=N):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 8)).astype("float32"), rng.integers(0, 3, n)


def plain_model(optimizer=None, hidden=(), **compile_args):
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(12, "tanh"), *hidden, keras.layers.Dense(3, "softmax")]
    )
    args = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]} | compile_args
    model.compile(optimizer or sgd(), **args)
    return model


def sgd(**args):
    return keras.optimizers.SGD(0.05, momentum=0.9, **args)


def masks():
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 9, (N, 6)) * (np.arange(6) < rng.integers(1, 7, N)[:, None])
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(9, 5, mask_zero=True),
            keras.layers.GRU(7, return_sequences=True, reset_after=False),
            keras.layers.Dense(9, "softmax"),
        ]
    )
    model.compile(sgd(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, (tokens, np.roll(tokens, -1, axis=1)), {}


def mean_with_sample_weight():
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    weights = np.random.default_rng(2).uniform(0.1, 3, N).astype("float32")
    return plain_model(loss=loss, metrics=None), (*plain_data(), weights), {}


def sum_reduction():
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
    return plain_model(keras.optimizers.SGD(0.002, momentum=0.9), loss=loss), plain_data(), {}


def no_reduction():
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="none")
    return plain_model(keras.optimizers.SGD(0.002, momentum=0.9), loss=loss), plain_data(), {}


def variable_length():
    """Batches padded to their longest row, without a mask: a loss is divided by more than rows."""
    rows = [np.full((1 + i % 5, 2), i / N, "float32") for i in range(N)]
    data = tf.data.Dataset.from_tensor_slices(np.arange(N, dtype="int32"))
    ragged = tf.ragged.constant([row.tolist() for row in rows], ragged_rank=1, dtype=tf.float32)
    data = data.map(lambda i: (ragged[i], ragged[i][:, :1])).padded_batch(BATCH, padded_shapes=([None, 2], [None, 1]))
    model = keras.Sequential([keras.Input((None, 2)), keras.layers.Conv1D(3, 2, padding="same"), keras.layers.Dense(1)])
    model.compile(sgd(), "mse")
    return model, data, {}


def scalar_loss():
    def loss(y_true, y_pred):
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred))

    return plain_model(loss=loss), plain_data(), {}


def nested_and_string_inputs():
    rng = np.random.default_rng(0)
    inputs = {"word": keras.Input((1,), dtype="string"), "pair": (keras.Input((3,)), keras.Input((2,), dtype="int64"))}
    word = keras.layers.StringLookup(vocabulary=["red", "green"], output_mode="one_hot")(inputs["word"])
    numbers = keras.layers.Embedding(5, 2)(inputs["pair"][1])
    joined = keras.layers.Concatenate()([word, inputs["pair"][0], keras.layers.Flatten()(numbers)])
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    model.compile(sgd(), "mse", metrics=["mae"])
    words = tf.constant(np.array(["red", "green", "blue"])[rng.integers(0, 3, N)].reshape(-1, 1))
    x = {"word": words, "pair": (rng.normal(size=(N, 3)).astype("float32"), rng.integers(0, 5, (N, 2)))}
    return model, (x, rng.normal(size=(N, 1)).astype("float32")), {}


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(12, "tanh"), keras.layers.Dense(3)

    def call(self, x, training=False):
        self.add_loss(0.01 * keras.ops.mean(x**2))
        return self.out(self.hidden(x))


def subclassed():
    model = Subclassed()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sgd(), loss, metrics=["accuracy"])
    return model, plain_data(), {}


class OwnStep(Subclassed):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"own_loss": loss}


def own_train_step():
    model = OwnStep()
    model.compile(sgd(global_clipnorm=0.3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, plain_data(), {}


class TwoOptimizers(keras.Model):
    """A GAN: no `call`, and two optimizers that nobody builds."""

    def __init__(self):
        super().__init__()
        self.judge = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        self.maker = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(8)])
        self.average = keras.metrics.Mean(name="maker_loss")

    def compile(self, judge_optimizer, maker_optimizer, loss):
        super().compile()
        self.judge_optimizer, self.maker_optimizer, self.how_wrong = judge_optimizer, maker_optimizer, loss

    def train_step(self, data):
        real, noise = data
        rows = tf.shape(real)[0]
        yes, no = tf.ones((rows, 1)), tf.zeros((rows, 1))
        with tf.GradientTape() as tape:
            judged = self.judge(tf.concat([real, self.maker(noise)], 0))
            loss = self.how_wrong(yes, judged[:rows]) + self.how_wrong(no, judged[rows:])
        self._step(tape, loss, self.judge, self.judge_optimizer)
        with tf.GradientTape() as tape:
            loss = self.how_wrong(yes, self.judge(self.maker(noise)))
        self._step(tape, loss, self.maker, self.maker_optimizer)
        self.average.update_state(loss)
        return {"maker_loss": self.average.result()}

    def _step(self, tape, loss, part, optimizer):
        variables = part.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


def two_optimizers():
    model = TwoOptimizers()
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(sgd(), keras.optimizers.Adam(0.01, global_clipnorm=0.1), loss)
    rng = np.random.default_rng(0)
    return model, tuple(rng.normal(size=(N + 1, 8)).astype("float32") for _ in range(2)), {}


class OwnLoss(Subclassed):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        raw = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        return keras.ops.mean(raw) + sum(self.losses)


def own_compute_loss():
    model = OwnLoss()
    model.compile(sgd())
    return model, plain_data(), {}


def synchronised_batch_normalisation():
    return plain_model(hidden=[keras.layers.BatchNormalization(synchronized=True)]), plain_data(96), {}


def random_layers():
    augmented = [
        keras.layers.Reshape((4, 3, 1)),
        keras.layers.RandomFlip(seed=5),
        keras.layers.RandomTranslation(0.2, 0.2),
    ]
    return plain_model(hidden=[*augmented, keras.layers.Flatten(), keras.layers.Dropout(0.3)]), plain_data(), {}


def many_metrics():
    """Metrics with integer state, other shapes, results that are dicts; a sample weight for one output only."""
    inputs = keras.Input((8,))
    outputs = {"a": keras.layers.Dense(1, "sigmoid", name="a"), "b": keras.layers.Dense(3, name="b")}
    model = keras.Model(inputs, {name: layer(inputs) for name, layer in outputs.items()})
    metrics = {
        "a": ["acc", keras.metrics.AUC(), keras.metrics.BinaryIoU(), ExampleCount()],
        "b": [keras.metrics.R2Score(), keras.metrics.TopKCategoricalAccuracy(2)],
    }
    losses, weighted = {"a": "binary_crossentropy", "b": "mse"}, {"a": ["mse"], "b": []}
    model.compile(sgd(), losses, metrics=metrics, weighted_metrics=weighted)
    x, labels = plain_data()
    y = {"a": (labels > 0).astype("float32").reshape(-1, 1), "b": np.eye(3, dtype="float32")[labels]}
    return model, (x, y, {"a": np.linspace(0.1, 2.0, N).astype("float32"), "b": None}), {}


class ExampleCount(keras.metrics.Metric):
    """An integer that does not start at zero, and a result that is a dict."""

    def __init__(self):
        super().__init__(name="count")
        self.count = self.add_variable((), initializer="ones", dtype="int32", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(keras.ops.shape(y_pred)[0])

    def result(self):
        return {"one_more_than_seen": self.count}

    def reset_state(self):
        self.count.assign(1)


def stateful_recurrent():
    rng = np.random.default_rng(0)
    layers = [keras.Input(batch_shape=(BATCH, 4, 2)), keras.layers.LSTM(3, stateful=True), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(sgd(), "mse")
    return model, (rng.normal(size=(96, 4, 2)).astype("float32"), rng.normal(size=(96, 1)).astype("float32")), {}


def constraints_and_schedule():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 12)
    constrained = keras.layers.Dense(12, "tanh", kernel_constraint=keras.constraints.MaxNorm(0.5))
    return plain_model(keras.optimizers.AdamW(schedule, weight_decay=0.1), [constrained]), plain_data(), {}


def frozen_layer():
    model = plain_model()
    model.layers[0].trainable = False
    model.compile(sgd(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, plain_data(), {}


def eager():
    return plain_model(run_eagerly=True), plain_data(40), {}


def compiled_by_xla():
    return plain_model(jit_compile=True), plain_data(96), {}


def steps_per_execution():
    return plain_model(), plain_data(), {"steps_per_execution": 3}


def data_set_of_unknown_size():
    x, y = plain_data()
    data = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda x, y: x[0] > -1.0).batch(BATCH)
    return plain_model(), data, {}


def data_set_of_known_size():
    return plain_model(), tf.data.Dataset.from_tensor_slices(plain_data()).batch(BATCH), {}


def swapped_averages():
    model = plain_model(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.8))
    return model, plain_data(), {"callbacks": [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]}


def mixed(policy):
    keras.config.set_dtype_policy(policy)
    try:
        return plain_model(), plain_data(96), {}
    finally:
        keras.config.set_dtype_policy("float32")


def mixed_bfloat16():
    return mixed("mixed_bfloat16")


def mixed_float16():
    return mixed("mixed_float16")


def optimizer(name):
    def feature():
        return plain_model(getattr(keras.optimizers, name)(learning_rate=0.01)), plain_data(), {}

    feature.__name__ = name
    return feature


FEATURES = {
    feature.__name__: feature
    for feature in (
        masks, mean_with_sample_weight, sum_reduction, no_reduction, variable_length, scalar_loss,
        nested_and_string_inputs, subclassed, own_train_step, two_optimizers, own_compute_loss,
        random_layers, many_metrics, stateful_recurrent, synchronised_batch_normalisation,
        constraints_and_schedule, frozen_layer, eager, compiled_by_xla, steps_per_execution,
        data_set_of_unknown_size, data_set_of_known_size, swapped_averages, mixed_bfloat16, mixed_float16,
        *(optimizer(name) for name in OPTIMIZERS),
    )
}  # fmt: skip


def train(name, fit, strategy):
    """Trains a feature; returns weights, loss and loss scale."""
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model, data, extras = FEATURES[name]()
    arrays = dict(zip(("x", "y", "sample_weight"), data)) if isinstance(data, tuple) else {"x": data}
    size = {"batch_size": BATCH, "shuffle": False} if isinstance(data, tuple) else {}
    history = fit(model, **arrays, **size, epochs=EPOCHS, verbose=0, **extras)
    variables = model.optimizer.variables
    scale = [float(v.numpy()) for v in variables if v.path.endswith("dynamic_scale")]
    return {
        "weights": model.get_weights(),
        "logs": {name: values for name, values in history.history.items() if not name.endswith("_loss")},
        "loss": history.history[min(history.history, key=lambda name: name != "loss")],
        "scale": scale,
    }


def reference(names):
    """Plain Keras on one device, without what only changes how it is run."""

    def fit(model, steps_per_execution=1, **arguments):
        model.jit_compile = model.run_eagerly = False
        return model.fit(**arguments)

    return {name: train(name, fit, tf.distribute.get_strategy()) for name in names}


def distributed(topology, names, accumulate=1):
    """The same by tfdist; an exception's text where one is raised."""
    strategy = strategies.make(topology)

    def fit(model, **arguments):
        own = type(model).train_step is not keras.Model.train_step
        return tfdist.fit(model, **arguments, accumulate_steps=1 if own else accumulate)

    return {name: train(name, fit, strategy) for name in names}
