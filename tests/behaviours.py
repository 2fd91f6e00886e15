"""What a worker does in tests of the loop: each function runs on every worker and returns what it saw."""

import pathlib

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.strategy import share_of


def data(n=120):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)).astype("float32")
    return x, (x.sum(axis=1) > 0).astype("int64")


def model(strategy, *hidden, metrics=lambda: ["accuracy"], optimizer=lambda: keras.optimizers.SGD(0.1)):
    with strategy.scope():
        made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), *hidden, keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(optimizer(), loss, metrics=metrics())
    return made


def kept_by_dropout(strategy, accumulate_steps=1):
    """Which of 64 examples a dropout of rate 0.5 keeps, in each of two steps on the same batch."""
    with strategy.scope():
        embedding = keras.layers.Embedding(64, 1, embeddings_initializer="zeros")
        made = keras.Sequential([keras.Input((1,)), embedding, keras.layers.Dropout(0.5, seed=7)])
        made.compile(keras.optimizers.SGD(1.0), lambda y_true, y_pred: keras.ops.sum(y_pred, axis=-1))
    ids = np.arange(64).reshape(-1, 1)
    kept = []
    for _ in range(2):
        before = embedding.get_weights()[0][:, 0]
        tfdist.fit(made, ids, ids, batch_size=64, shuffle=False, verbose=0, accumulate_steps=accumulate_steps)
        kept.append((embedding.get_weights()[0][:, 0] != before).tolist())
    return kept


def batch_statistics(strategy):
    """Moving statistics and evaluation of a model with unsynchronised batch normalisation."""
    made = model(strategy, keras.layers.BatchNormalization())
    x, y = data()
    tfdist.fit(made, x, y, batch_size=40, epochs=2, verbose=0)
    return {"weights": made.get_weights(), "evaluation": tfdist.evaluate(made, x, y, batch_size=40, verbose=0)}


class Counted(keras.metrics.Metric):
    """Counts the examples that it sees."""

    def __init__(self):
        super().__init__(name="examples")
        self.seen = self.add_weight(shape=(), initializer="zeros", name="seen")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.seen.assign_add(keras.ops.cast(keras.ops.shape(y_pred)[0], "float32"))

    def result(self):
        return self.seen


def evaluation(strategy):
    """Evaluation and prediction of 1,797 examples, with a last batch of one example."""
    keras.utils.set_random_seed(1)
    metrics = lambda: ["accuracy", keras.metrics.SparseCategoricalAccuracy(name="again"), Counted()]  # noqa: E731
    made = model(strategy, metrics=metrics)
    x, y = data(1797)
    logs = tfdist.evaluate(made, x, y, batch_size=449, verbose=0)
    outputs = tfdist.predict(made, x, batch_size=449, verbose=0)
    return {"logs": logs, "outputs": outputs, "weights": made.get_weights()}


class StopOnOneWorker(keras.callbacks.Callback):
    def __init__(self, stops, step):
        super().__init__()
        self.stops, self.step, self.batches = stops, step, []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)
        if self.stops and batch == self.step:
            self.model.stop_training = True


def stop_decided_by_last_worker(strategy):
    """Steps run, where only the last worker's callback stops, in the middle of an epoch."""
    share = share_of(strategy)
    made = model(strategy)
    callback = StopOnOneWorker(share.worker == share.workers - 1, 4)
    history = tfdist.fit(made, *data(), batch_size=10, epochs=3, verbose=0, callbacks=[callback])
    return {"iterations": int(made.optimizer.iterations.numpy()), "epochs": history.epoch, "batches": callback.batches}


def stock_callbacks(strategy, folder):
    """Files and history of a training with the stock callbacks."""
    folder = pathlib.Path(folder)
    calls = []
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="val_loss", save_best_only=True),
        keras.callbacks.ModelCheckpoint(
            folder / "at-{epoch:02d}-{batch:02d}.weights.h5", save_weights_only=True, save_freq=7
        ),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.TensorBoard(folder / "tensorboard"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_delta=10.0),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=3, min_delta=10.0, restore_best_weights=True),
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: calls.append((batch, sorted(logs)))),
    ]
    made = model(strategy, keras.layers.BatchNormalization())
    history = tfdist.fit(
        made, *data(), batch_size=10, epochs=10, verbose=0, callbacks=callbacks, validation_data=data(50)
    )
    evaluation = tfdist.evaluate(made, *data(50), batch_size=10, verbose=0)
    return {"history": history.history, "calls": calls, "weights": made.get_weights(), "evaluation": evaluation}


def not_a_number(strategy):
    """Epochs and steps until TerminateOnNaN stops a training that diverges."""
    made = model(strategy, optimizer=lambda: keras.optimizers.SGD(float("inf")))
    history = tfdist.fit(
        made, *data(), batch_size=10, epochs=5, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()]
    )
    return history.epoch, int(made.optimizer.iterations.numpy())


def arguments_of_fit(strategy):
    """Histories of fits that use Keras's further arguments, one after the other on one model."""
    made = model(strategy)
    x, y = data()
    fit = lambda *args, **kwargs: tfdist.fit(made, *args, verbose=0, batch_size=10, **kwargs).history  # noqa: E731
    steps = lambda: int(made.optimizer.iterations.numpy())  # noqa: E731
    seen = {"split": (fit(x, y, validation_split=0.25), steps())}
    seen["frequency"] = (fit((x, y), epochs=3, validation_data=(x, y), validation_freq=2), steps())
    seen["initial_epoch"] = (fit(x, y, epochs=3, initial_epoch=2), steps())
    seen["steps_per_epoch"] = (fit(x, y, epochs=2, steps_per_epoch=5), steps())
    seen["endless"] = (fit_data_set(made, x, y, steps_per_epoch=5), steps())
    with strategy.scope():
        made.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    seen["compiled_again"] = (fit(x, np.stack([y, y], 1).astype("float32"), drop_remainder=True), steps())
    return seen


def fit_data_set(made, x, y, **kwargs):
    endless = tf.data.Dataset.from_tensor_slices((x, y)).batch(10).repeat()
    return tfdist.fit(made, endless, verbose=0, **kwargs).history


def orders_of_unknown_size(strategy):
    """Losses of two epochs of a shuffled data set of unknown size, on a model that does not learn."""
    made = model(strategy, optimizer=lambda: keras.optimizers.SGD(0.0))
    data_set = tf.data.Dataset.from_tensor_slices(data(60)).filter(lambda x, y: True)
    first_losses = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: first_losses.append(logs["loss"]) if batch == 0 else None
    )
    tfdist.fit(made, data_set.shuffle(60, seed=1).batch(10), epochs=3, verbose=0, callbacks=[callback])
    return first_losses


def more_steps_than_data(strategy):
    """Examples counted and predicted where more steps are asked for than the data has; a data set to validate on."""
    made = model(strategy, metrics=lambda: [Counted()])
    x, y = data(50)
    held_out = tf.data.Dataset.from_tensor_slices((x, y)).batch(7)
    history = tfdist.fit(made, x, y, batch_size=10, verbose=0, validation_data=held_out, validation_steps=4)
    logs = tfdist.evaluate(made, x, y, batch_size=20, steps=9, verbose=0)
    outputs = tfdist.predict(made, x, batch_size=20, steps=9, verbose=0)
    return logs["examples"], outputs.shape, history.history["examples"], history.history["val_examples"]


class StopAtOnce(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.model.stop_training = True


def stopped_before_it_began(strategy):
    """Optimizer steps of a training that is stopped before its first one."""
    made = model(strategy)
    tfdist.fit(made, *data(), batch_size=10, epochs=3, verbose=0, callbacks=[StopAtOnce()])
    return int(made.optimizer.iterations.numpy())


def unseeded_weights(strategy):
    """Weights of a model that nobody seeded."""
    return model(strategy).get_weights()


def model_fit(strategy):
    """Results of the model's own methods after `enable_model_fit`."""
    tfdist.enable_model_fit()
    tfdist.enable_model_fit()
    keras.utils.set_random_seed(1)
    made = model(strategy)
    x, y = data(103)
    history = made.fit(x, y, 10, 2, 0, shuffle=False)
    values, logs = made.evaluate(x, y, verbose=0), made.evaluate(x, y, verbose=0, return_dict=True)
    return {"history": history.history, "values": values, "logs": logs, "outputs": made.predict(x, verbose=0)}


def all_of(topology, folder):
    """All behaviours in one process."""
    import strategies

    strategy = strategies.make(topology)

    return {
        "kept_by_dropout": [kept_by_dropout(strategy), kept_by_dropout(strategy), kept_by_dropout(strategy, 4)],
        "stock_callbacks": stock_callbacks(strategy, folder),
        "model_fit": model_fit(strategy),
    } | {
        function.__name__: function(strategy)
        for function in (
            batch_statistics, evaluation, stop_decided_by_last_worker, not_a_number, arguments_of_fit, unseeded_weights,
            orders_of_unknown_size, more_steps_than_data, stopped_before_it_began,
        )
    }  # fmt: skip
