"""I8 for the loop: what `fit`, `evaluate` and `predict` refuse, with value, rule and remedy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tfdist.testing import run_cluster

X, Y = np.zeros((10, 4), "float32"), np.zeros((10, 1), "float32")


def model(optimizer="sgd", kind=keras.Model, compiled=True):
    inputs = keras.Input((4,))
    made = kind(inputs, keras.layers.Dense(1)(inputs))
    if compiled:
        made.compile(optimizer, "mse")
    return made


class OwnStep(keras.Model):
    def train_step(self, data):
        return {"loss": keras.ops.mean(self(data[0]))}


def spectral():
    made = keras.Sequential([keras.Input((4,)), keras.layers.SpectralNormalization(keras.layers.Dense(1))])
    made.compile("sgd", "mse")
    return made


def endless():
    return tf.data.Dataset.from_tensors((X, Y)).repeat()


def short():
    return tf.data.Dataset.from_tensors((X, Y)).filter(lambda x, y: True)


def of_any_length():
    return tfdist.data.from_arrays(np.arange(1, 5)).map(lambda i: (tf.ones([i, 4])[0], tf.ones([i])))


REFUSED = [
    (
        lambda: tfdist.fit(model(), of_any_length(), verbose=0),
        tfdist.DataError,
        r"shapes \[1\] and \[2\] in one batch.*Pad, cut",
    ),
    (lambda: tfdist.fit(model(compiled=False), X, Y), tfdist.UserError, "not compiled"),
    (lambda: tfdist.evaluate(model(compiled=False), X, Y), tfdist.UserError, "not compiled"),
    (lambda: tfdist.fit(model(), X, Y, accumulate_steps=0), tfdist.BatchError, "accumulate_steps=0"),
    (lambda: tfdist.fit(model(), X, Y, batch_size=0), tfdist.BatchError, "batch_size=0"),
    (lambda: tfdist.fit(model(), X, Y, batch_size=32, drop_remainder=True), tfdist.BatchError, "at most 10"),
    (lambda: tfdist.fit(model(), X, Y, steps_per_execution="many"), tfdist.UserError, "steps_per_execution='many'"),
    (
        lambda: tfdist.fit(model(keras.optimizers.SGD(gradient_accumulation_steps=2)), X, Y),
        tfdist.UnsupportedError,
        r"fit\(accumulate_steps=",
    ),
    (lambda: tfdist.fit(model(kind=OwnStep), X, Y, accumulate_steps=2), tfdist.UnsupportedError, "compute_loss"),
    (lambda: tfdist.fit(model(), X, Y, epochs="2"), tfdist.UserError, "epochs='2'"),
    (lambda: tfdist.fit(spectral(), X, Y), tfdist.UnsupportedError, "weights that are trained: .*kernel"),
    (lambda: tfdist.fit(model(), endless()), tfdist.DataError, "steps_per_epoch"),
    (lambda: tfdist.fit(model(), short(), steps_per_epoch=5), tfdist.DataError, r"dataset\.repeat"),
    (lambda: tfdist.fit(model(), X, Y, sample_weight=Y, class_weight={0: 1}), tfdist.DataError, "Multiply them"),
    (lambda: tfdist.fit(model(), X, Y, validation_split=1.5), tfdist.DataError, "validation_split=1.5"),
    (lambda: tfdist.fit(model(), X, Y, class_weight={"a": 1.0}), tfdist.DataError, "class index"),
    (lambda: tfdist.fit(model(), X, class_weight={0: 1.0}), tfdist.DataError, "sample_weight"),
]


@pytest.mark.parametrize(("action", "error", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_refused_with_the_remedy(action, error, message):
    with pytest.raises(error, match=message) as raised:
        action()
    assert raised.value.exit_code == 64


def mistakes_on_two_workers():
    """The messages that a worker sees for what only fails on several workers."""
    strategy = tfdist.make_strategy("multiworker")
    with strategy.scope():
        whole, own = model(), model(kind=OwnStep)
        outside = model(compiled=False)
    outside.compile(keras.optimizers.SGD(), "mse")
    actions = {
        "outside": lambda: tfdist.fit(outside, X, Y),
        "no scope": lambda: tfdist.fit(model(), X, Y),
        "own step": lambda: tfdist.fit(own, X, Y, batch_size=9),
        "backup": lambda: tfdist.fit(whole, X, Y, callbacks=[keras.callbacks.BackupAndRestore("backup")]),
    }
    messages = {}
    for name, action in actions.items():
        with pytest.raises(tfdist.UserError) as raised:
            action()
        messages[name] = str(raised.value)
    return messages


@pytest.mark.process
def test_refused_on_several_workers():
    for messages in run_cluster(mistakes_on_two_workers, 2):
        assert "inside `with strategy.scope():`" in messages["outside"]
        assert "describes 2 workers" in messages["no scope"]
        assert "1 row(s) for 2 replicas" in messages["own step"]
        assert "tfdist.callbacks.BackupAndRestore" in messages["backup"]
