"""Trainings that are interrupted on purpose, in one process, and what they have to end with."""

import os
import signal
import time

import keras
import numpy as np
import tensorflow as tf

import tfdist


class OwnStep(keras.Model):
    """A model with a train_step of its own, which returns logs of its own."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"own": loss}


class Interrupt(keras.callbacks.Callback):
    """Interrupts the training after so many calls of it, evaluations' batches or epochs, once."""

    def __init__(self, after, how, when="train"):
        super().__init__()
        self.left, self.how, self.when = after, how, when

    def on_train_batch_end(self, batch, logs=None):
        self.count("train")

    def on_test_batch_end(self, batch, logs=None):
        self.count("test")

    def on_epoch_end(self, epoch, logs=None):
        self.count("epoch")

    def count(self, when):
        self.left -= when == self.when
        if self.left == 0 and when == self.when:
            self.how()


class Crash(Exception):
    """The training's process breaks down."""


def crash():
    raise Crash


def preempt():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.3)  # a thread hears it


def until_it_has_ended(fit, interruptions):
    """What the last call of `fit(interruption)` returns, with None, after those that were interrupted."""
    for interruption in interruptions:
        try:
            fit(interruption)
        except (Crash, tfdist.Preempted):
            continue
        raise AssertionError("the training ended before it was interrupted")
    return fit(None)


def callbacks(backup, interruption, *more):
    """Those of a training, with states of their own, around the one that saves it."""
    reduce, stop = keras.callbacks.ReduceLROnPlateau(patience=1), keras.callbacks.EarlyStopping(patience=5)
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    return [reduce, halve, backup, stop, *more, *([] if interruption is None else [interruption])]


def state_of(model):
    return [np.asarray(variable.numpy()) for variable in [*model.variables, *model.optimizer.variables]]


def check_same(one, other):
    """Of two trainings, `(model, history)`: that they ended with the same bits."""
    assert one[1].history == other[1].history
    assert one[1].epoch == other[1].epoch
    for mine, theirs in zip(state_of(one[0]), state_of(other[0]), strict=True):
        np.testing.assert_array_equal(mine, theirs)
