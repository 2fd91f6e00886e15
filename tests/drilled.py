"""A training that is disturbed on purpose, in processes of its own: what the drills run."""

import os
import pathlib
import random
import signal
import sys
import threading
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.strategy import share_of

EXAMPLES, BATCH, EPOCHS = 90, 8, 9  # twelve steps an epoch, the last one of two rows
STEPS = -(-EXAMPLES // BATCH)
ALL = -1  # in the place of a worker's rank


class Disturbance(NamedTuple):
    """A signal that a worker, or each of them, sends itself at a place.

    Places: "step" (after step `count` of the whole training), "evaluation" (after batch `count` of the first one that
    the process comes to), "epoch" (`count` tenths of a second after its first epoch has begun: it is being traced),
    "restore" (while the state is put back), and on the chief, at the process's checkpoint number `count`: "making" (it
    has no folder yet), "writing" (it lacks its manifest), "naming" (it is whole, under another name).
    """

    number: int
    place: str
    count: int = 0
    worker: int = 0

    def hit(self, workers: int):
        """The ranks of those that are hit."""
        return range(workers) if self.worker == ALL else [self.worker]

    def __str__(self):
        who = "all workers" if self.worker == ALL else f"worker {self.worker}"
        return f"{signal.Signals(self.number).name} to {who} at {self.place} {self.count}"


class Disturber(keras.callbacks.Callback):
    """Carries a disturbance out, if it is one of this worker. It counts the steps of the whole training."""

    def __init__(self, disturbance: Disturbance | None, rank: int):
        super().__init__()
        self.disturbance = disturbance if disturbance and rank in disturbance.hit(rank + 1) else None
        self.steps = self.checkpoints = 0
        self.begun = False
        if self.disturbance:
            sys.addaudithook(self.audit)

    def strike(self, place, count=0):
        if self.disturbance and (place, count) == (self.disturbance.place, self.disturbance.count):
            os.kill(os.getpid(), self.disturbance.number)

    def audit(self, event, arguments):
        """Python tells of each folder made, file opened and file renamed before it does it."""
        if event not in ("os.mkdir", "open", "os.rename") or ".partial-" not in str(arguments[0]):
            return
        self.checkpoints += event == "os.mkdir"
        place = {"os.mkdir": "making", "open": "writing", "os.rename": "naming"}[event]
        if event != "open" or (str(arguments[0]).endswith("manifest.json") and arguments[1] == "w"):
            self.strike(place, self.checkpoints)

    def on_epoch_begin(self, epoch, logs=None):
        if not self.begun and self.disturbance and self.disturbance.place == "epoch":
            count = self.disturbance.count
            threading.Timer(count / 10, self.strike, ("epoch", count)).start()
        self.begun = True

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self.strike("step", self.steps)

    def on_test_batch_end(self, batch, logs=None):
        self.strike("evaluation", batch)

    def get_state(self):
        return {"steps": self.steps}

    def set_state(self, state):
        self.steps = state["steps"]
        self.strike("restore")


class Drawn(keras.callbacks.Callback):
    """Puts random numbers of Python's and NumPy's into the history."""

    def on_epoch_end(self, epoch, logs=None):
        logs["drawn"] = random.random() + np.random.random()  # noqa: NPY002  the generator that Keras seeds


def data(examples, seed):
    """Labels have nothing to do with the inputs, so that validation becomes worse."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(examples, 6)).astype("float32")
    return x, rng.integers(0, 2, size=(examples, 1)).astype("float32")


def model(strategy, random_layers):
    with strategy.scope():
        hidden = (keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)) if random_layers else ()
        made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(32, "relu"), *hidden, keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        made.compile(keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.9), loss, metrics=["mae"])
    return made


def stock_callbacks():
    return [
        keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.0),
    ]


def train_plainly(folder, save_freq=None, disturbance=None):
    """As `train`, without layers whose results depend on how a batch is divided."""
    return train(folder, save_freq, disturbance, exactly=False)


def train(folder, save_freq=None, disturbance=None, *, exactly=True):
    """Trains in `folder`, without checkpoints unless `save_freq` is given. Returns all that it comes to.

    `exactly`: what comes out depends to the bit on how many workers there are.
    """
    keras.utils.set_random_seed(7)
    tf.config.experimental.enable_op_determinism()
    strategy = tfdist.make_strategy()
    made = model(strategy, exactly)
    callbacks = [Drawn(), Disturber(disturbance, share_of(strategy).worker), *stock_callbacks()]
    if save_freq is not None:
        checkpoints = pathlib.Path(folder, "checkpoints")
        callbacks.append(
            tfdist.callbacks.BackupAndRestore(checkpoints, save_freq, double_checkpoint=True, delete_checkpoint=False)
        )
    history = tfdist.fit(
        made, *data(EXAMPLES, 0), batch_size=BATCH, epochs=EPOCHS, validation_data=data(40, 1), callbacks=callbacks,
        accumulate_steps=2 if exactly else 1, verbose=0, ledger=pathlib.Path(folder, "ledger"),
    )  # fmt: skip
    return {
        "weights": made.get_weights(),
        "optimizer": [np.asarray(values) for values in made.optimizer.variables],
        "history": history.history,
        "epochs": history.epoch,
    }
