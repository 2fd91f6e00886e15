"""What `fit` writes to a ledger, from one call of it to the next."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tfdist.ledger import read_report

EXAMPLES = 40


class StopAt(keras.callbacks.Callback):
    """Stops the training at a step of an epoch."""

    def __init__(self, epoch, step):
        super().__init__()
        self.place, self.epoch = (epoch, step), 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.place:
            self.model.stop_training = True


def model():
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def arrays():
    numbers = np.arange(EXAMPLES, dtype="float32").reshape(-1, 1)
    return tfdist.data.from_arrays(numbers, numbers, shuffle=True)


def stream(batch=8, endless=False):
    """A data set that does not know its size."""
    numbers = tf.data.Dataset.range(EXAMPLES).filter(lambda i: True).map(lambda i: tf.cast([i], tf.float32))
    numbers = numbers.repeat() if endless else numbers
    return numbers.map(lambda i: (i, i)).batch(batch)


def fit(folder, data, **arguments):
    tfdist.fit(model(), data, verbose=0, ledger=folder, **arguments)


def epochs(folder):
    return [(epoch.epoch, epoch.steps, epoch.once, epoch.over) for epoch in read_report(folder).epochs]


@pytest.mark.parametrize(("before", "after"), [(8, 4), (4, 8), (8, 8)])
def test_a_training_may_go_on_with_another_global_batch(tmp_path, before, after):
    fit(tmp_path, arrays(), batch_size=before, epochs=1)
    fit(tmp_path, arrays(), batch_size=after, epochs=3, initial_epoch=1)
    assert read_report(tmp_path).exactly_once
    steps = [EXAMPLES // before, EXAMPLES // after, EXAMPLES // after]
    assert epochs(tmp_path) == [(epoch, count, EXAMPLES, True) for epoch, count in enumerate(steps)]


def test_what_was_trained_before_a_stop_stays(tmp_path):
    fit(tmp_path, stream(), epochs=3, callbacks=[StopAt(1, 2)])
    fit(tmp_path, stream(), epochs=4, initial_epoch=2)
    assert epochs(tmp_path) == [(0, 5, 40, True), (1, 3, 24, True), (2, 5, 40, True), (3, 5, 40, True)]


def test_an_epoch_of_endless_data_is_one_of_the_training(tmp_path):
    fit(tmp_path, stream(endless=True), epochs=2, steps_per_epoch=5)
    fit(tmp_path, stream(endless=True), epochs=3, steps_per_epoch=5, initial_epoch=2)
    assert read_report(tmp_path).exactly_once
    assert epochs(tmp_path) == [(epoch, 5, 40, True) for epoch in range(3)]


def test_epochs_of_some_steps_of_data_that_ends_are_one_epoch_of_the_data(tmp_path):
    fit(tmp_path, stream(), epochs=1, steps_per_epoch=2)
    fit(tmp_path, stream(), epochs=2, steps_per_epoch=2, initial_epoch=1)
    assert read_report(tmp_path).exactly_once
    assert epochs(tmp_path) == [(0, 4, 32, False)]


def test_steps_of_an_epoch_that_do_not_divide_the_data(tmp_path):
    fit(tmp_path, arrays(), batch_size=8, epochs=2, steps_per_epoch=3)
    fit(tmp_path, arrays(), batch_size=8, epochs=5, steps_per_epoch=3, initial_epoch=2)
    assert read_report(tmp_path).exactly_once
    assert epochs(tmp_path) == [(0, 5, 40, True), (1, 5, 40, True), (2, 5, 40, True)]


def test_what_drop_remainder_leaves_out_is_no_fault(tmp_path):
    fit(tmp_path, arrays(), batch_size=12, epochs=2, drop_remainder=True)
    assert read_report(tmp_path).exactly_once
    assert epochs(tmp_path) == [(0, 3, 36, True), (1, 3, 36, True)]


def test_a_mixture_has_no_ledger(tmp_path):
    with pytest.raises(tfdist.DataError, match="ledger of a mixture"):
        fit(tmp_path, tfdist.data.mix([arrays(), arrays()], [1, 3]))
