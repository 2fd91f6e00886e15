"""The contract with Keras's own `fit`: a failure here says what a release has changed."""

import inspect

import keras
import numpy as np
import pytest
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, TFEpochIterator

from tfdist.compat import running_fit

X = np.arange(12, dtype="float32").reshape(12, 1)


class Look(keras.callbacks.Callback):
    """Calls `act(fit, model)` when the training begins, and notes what it trains on."""

    def __init__(self, act):
        super().__init__()
        running_fit.close_stacks()
        self.act, self.seen, self.epochs = act, [], []

    def on_train_begin(self, logs=None):
        self.act(running_fit.running_fit(self.model), self.model)

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(epoch)

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, logs["loss"]))


def fit(act, **arguments):
    """Three epochs of six batches; the loss of a batch tells which it is."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), "mae")
    look = Look(act)
    history = model.fit(
        X, X, **{"batch_size": 2, "epochs": 3, "shuffle": False, "verbose": 0, "callbacks": [look]} | arguments
    )
    return look, history


def test_fit_has_the_local_variables_that_are_read():
    names = inspect.unwrap(TensorFlowTrainer.fit).__code__.co_varnames
    assert {"self", "callbacks", "epoch_iterator", "initial_epoch"} <= set(names)
    source = inspect.getsource(inspect.unwrap(TensorFlowTrainer.fit))
    begun, place = source.index("callbacks.on_train_begin()"), source.index("self._initial_epoch or initial_epoch")
    assert begun < place < source.index("self.reset_metrics()") < source.index("callbacks.on_epoch_begin(")
    assert source.index("self._get_metrics_result_or_logs(logs)") < source.index("self.evaluate(")
    assert "self._enumerate_iterator()" in inspect.getsource(TFEpochIterator.__iter__)


def test_the_running_fit_is_found_and_what_is_appended_comes_last():
    order = []

    def act(found, model):
        assert [type(callback) for callback in found.callbacks[:2]] == [Look, keras.callbacks.History]
        assert (found.first_epoch, found.feed.identity()["batches"]) == (1, 6)
        found.callbacks.append(keras.callbacks.LambdaCallback(on_train_begin=lambda logs: order.append("last")))
        found.stack.callback(order.append, "closed")

    fit(act, initial_epoch=1)
    assert order == ["last", "closed"]


def test_outside_of_fit_none_is_found():
    running_fit.close_stacks()
    assert running_fit.running_fit(keras.Sequential()) is None


def test_a_stack_is_closed_by_an_error_too_and_fit_is_wrapped_once():
    closed = []

    def act(found, model):
        found.stack.callback(closed.append, True)
        raise KeyError("broken")

    running_fit.close_stacks()
    wrapped = keras.Model.fit
    with pytest.raises(KeyError):
        fit(act)
    assert closed == [True]
    assert keras.Model.fit is wrapped


def test_it_begins_at_another_epoch_once():
    look, history = fit(lambda found, model: running_fit.begin_at(found, model, 2))
    assert history.epoch == look.epochs == [2]
    assert look.model._initial_epoch is None


@pytest.mark.parametrize("steps", [None, 6, 3])
def test_steps_are_skipped_in_the_next_epoch_alone(steps):
    whole, _ = fit(lambda found, model: None, steps_per_epoch=steps)
    look, _ = fit(lambda found, model: found.feed.skip(2), steps_per_epoch=steps)
    assert [batch for batch, _ in look.seen] == [batch for batch, _ in whole.seen][2:]
    # The metric is an average over the epoch, which begins anew in the next ones.
    assert look.seen[-1] == whole.seen[-1]
    assert look.seen[0][1] == pytest.approx(np.mean(X[4:6]))


def test_epochs_that_are_passed_are_over_and_in_the_midst_of_the_data_it_goes_on():
    def act(found, model):
        found.feed.pass_epochs(1)
        assert found.feed.drawn == 3
        found.feed.draw()

    look, _ = fit(act, steps_per_epoch=3, epochs=1)
    assert look.seen[0][1] == pytest.approx(np.mean(X[6:8]))

    def begin_anew(found, model):
        found.feed.pass_epochs(1)
        found.feed.begin_anew()

    look, _ = fit(begin_anew, steps_per_epoch=3, epochs=1)
    assert look.seen[0][1] == pytest.approx(np.mean(X[:2]))


def test_an_epoch_without_steps_says_what_it_is_told_to():
    def act(found, model):
        found.feed.skip_all()
        running_fit.finish_with(found, model, lambda own, logs: {"loss": 7.0, "steps": len(logs)})

    look, history = fit(act, epochs=2)
    assert history.history["loss"] == [7.0, pytest.approx(np.mean(X))]
    assert history.history["steps"] == [0]
    assert len(look.seen) == 6


def test_a_single_callback_is_called_in_the_main_thread():
    found = []
    fit(lambda fit, model: found.append(fit), callbacks=Look(lambda fit, model: found.append(fit)))
    assert found[0] is not None
