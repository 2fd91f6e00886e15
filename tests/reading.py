"""What a worker does in tests of the data: each function runs on every worker and returns what it saw."""

import os
import signal

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.errors import DataError

EXAMPLES, BATCH = 103, 10


def model(strategy):
    with strategy.scope():
        made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        made.compile(keras.optimizers.SGD(1e-4), "mse")
    return made


def pair(i):
    return tf.cast(tf.reshape(i, [1]), tf.float32), tf.cast(tf.reshape(i, [1]), tf.float32)


def arrays():
    return tfdist.data.from_arrays(np.arange(EXAMPLES), shuffle=True, seed=3).map(pair)


class KilledAt(keras.callbacks.Callback):
    """Ends its process after so many steps, the hard way."""

    def __init__(self, steps, rank):
        super().__init__()
        self.steps, self.mine = steps, tfdist.read_cluster().rank == rank

    def on_train_batch_end(self, batch, logs=None):
        self.steps -= 1
        if self.mine and not self.steps:
            os.kill(os.getpid(), signal.SIGKILL)


def train_recorded(folder, initial_epoch=0, epochs=3, killed_at=0):
    """Trains with a ledger in `folder`; the last worker is killed after `killed_at` steps, if any."""
    strategy = tfdist.make_strategy()
    callbacks = [KilledAt(killed_at, tfdist.read_cluster().num_workers - 1)] if killed_at else []
    tfdist.fit(
        model(strategy), arrays(), batch_size=BATCH, epochs=epochs, initial_epoch=initial_epoch, verbose=0,
        callbacks=callbacks, ledger=folder,
    )  # fmt: skip


def refused(act):
    """The message with which `act` is refused."""
    try:
        act()
    except DataError as error:
        return str(error)
    return None


def refusals():
    """What data that differs between the workers is refused with."""
    strategy, rank = tfdist.make_strategy(), tfdist.read_cluster().rank
    made = model(strategy)
    more = np.zeros((EXAMPLES + rank, 1), "float32")
    # The word of the user that the streams are the same is not true.
    uneven = tf.data.Dataset.from_tensor_slices((more, more)).repeat(1 + rank).filter(lambda *_: True).batch(BATCH)
    lied = tfdist.data.from_dataset(uneven, same_on_every_worker=True)
    return {
        "halves": refused(lambda: tfdist.fit(made, more[rank::2][:50], more[rank::2][:50] + rank, verbose=0)),
        "batch sizes": refused(lambda: tfdist.fit(made, arrays(), batch_size=BATCH + rank, verbose=0)),
        "epochs": refused(lambda: tfdist.fit(made, arrays(), batch_size=BATCH, epochs=1 + rank, verbose=0)),
        "sizes": refused(lambda: tfdist.fit(made, more, more, batch_size=BATCH, verbose=0)),
        "seeds": refused(
            lambda: tfdist.fit(made, tfdist.data.from_arrays(more[:50], more[:50], shuffle=True, seed=rank), verbose=0)
        ),
        "validation": refused(lambda: tfdist.fit(made, arrays(), validation_data=(more, more), verbose=0)),
        "predict": refused(lambda: tfdist.predict(made, more)),
        "ends": refused(lambda: tfdist.fit(made, lied, verbose=0)),
        "steps": refused(lambda: tfdist.fit(made, arrays(), batch_size=BATCH, verbose=0)),
    }


def lines(folder, policy):
    """The numbers from 0 in the files of a folder, as global batches."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    numbers = tf.data.TextLineDataset(sorted(tf.io.gfile.glob(f"{folder}/*.txt"))).map(tf.strings.to_number)
    batches = numbers.map(lambda i: (i[tf.newaxis], i[tf.newaxis])).batch(BATCH)
    return batches.with_options(options)


def of_one_worker(context):
    """A worker's every second number, with its rows of a global batch; the second one has fewer."""
    numbers = tf.data.Dataset.range(25).shard(context.num_input_pipelines, context.input_pipeline_id)
    return numbers.map(pair).batch(context.get_per_replica_batch_size(BATCH))


def with_holes(context):
    """A worker's own rows, of which the second one has none in the second batch."""
    mine = context.input_pipeline_id
    numbers = tf.data.Dataset.range(100 * mine, 100 * mine + 12).map(pair).batch(4)
    return numbers.map(lambda x, y: tuple(t[: 4 if mine == 0 else tf.where(x[0, 0] == 104, 0, 4)] for t in (x, y)))


def trained_with_holes(strategy):
    """The largest absolute weight after training on `with_holes`, with batch statistics."""
    with strategy.scope():
        made = keras.Sequential([keras.Input((1,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
        made.compile(keras.optimizers.SGD(1e-4), "mse")
    history = tfdist.fit(made, tfdist.data.from_dataset(with_holes), verbose=0)
    return int(made.optimizer.iterations.numpy()), history.history["loss"][0], [w.max() for w in made.get_weights()]


class OwnStep(keras.Model):
    """A model with a step of its own."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def own_step(strategy):
    """Steps of a model with a step of its own on batches that say that they are whole."""
    with strategy.scope():
        inputs = keras.Input((1,))
        made = OwnStep(inputs, keras.layers.Dense(1)(inputs))
        made.compile(keras.optimizers.SGD(1e-4), "mse")
    whole = tf.data.Dataset.range(20).map(pair).batch(BATCH, drop_remainder=True)
    tfdist.fit(made, whole, verbose=0)
    return int(made.optimizer.iterations.numpy())


def batches_once(numbers):
    """A generator that can be run through once."""
    for first in range(0, numbers, BATCH):
        rows = np.arange(first, min(first + BATCH, numbers), dtype="float32").reshape(-1, 1)
        yield rows, rows


def generated(first):
    return tf.data.Dataset.from_generator(
        lambda: iter(range(first, first + 45)), output_signature=tf.TensorSpec((), tf.int64)
    ).map(pair).batch(BATCH)  # fmt: skip


def mean_of(strategy, data):
    """The mean of the numbers in the data by way of an evaluation: the model's output is 0."""
    return tfdist.evaluate(model(strategy), data, verbose=0)["loss"]


def own_data(folder, ledgers):
    """Training and evaluation on the user's own tf.data; each training has a ledger in a folder of its name."""
    strategy, rank = tfdist.make_strategy(), tfdist.read_cluster().rank
    files = lines(folder, tf.data.experimental.AutoShardPolicy.FILE)
    made = {
        "files": files,
        "function": tfdist.data.from_dataset(of_one_worker),
        "once": batches_once(45),
        "generated": generated(0),
    }
    steps = {}
    for name, data in made.items():
        epochs = 1 if name == "once" else 2
        trained = model(strategy)
        tfdist.fit(trained, data, epochs=epochs, verbose=0, ledger=f"{ledgers}/{name}")
        steps[name] = int(trained.optimizer.iterations.numpy())
    return {
        "steps": steps,
        "losses": {"files": mean_of(strategy, files), "function": mean_of(strategy, made["function"])},
        "holes": trained_with_holes(strategy),
        "own step": own_step(strategy),
        "predict": refused(lambda: tfdist.predict(model(strategy), files.map(lambda x, y: x))),
        "differing": refused(lambda: tfdist.fit(model(strategy), generated(rank), verbose=0)),
        "unseeded": refused(
            lambda: tfdist.fit(model(strategy), generated(0).unbatch().shuffle(9).batch(BATCH), verbose=0)
        ),
    }
