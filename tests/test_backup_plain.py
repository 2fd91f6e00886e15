"""BackupAndRestore in Keras's own `fit`: an interrupted training goes on as if nothing had been."""

import logging
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tests import strategies
from tests.interruptions import Crash, Interrupt, OwnStep, callbacks, check_same, crash, preempt, until_it_has_ended
from tfdist.callbacks import BackupAndRestore, RollbackOnSpike
from tfdist.testing import run_cluster

EXAMPLES, BATCH, EPOCHS = 44, 8, 3
STEPS = 6  # in an epoch, the last one of four rows
RANDOM = np.random.RandomState(0)
X, Y = RANDOM.randn(EXAMPLES, 6).astype("float32"), RANDOM.randn(EXAMPLES, 1).astype("float32")


class Shuffled(keras.utils.PyDataset):
    """Batches in another order in each epoch."""

    def __init__(self):
        super().__init__()
        self.random, self.order = np.random.RandomState(5), np.arange(STEPS)

    @property
    def num_batches(self):
        return STEPS

    def __getitem__(self, index):
        rows = slice(self.order[index] * BATCH, (self.order[index] + 1) * BATCH)
        return X[rows], Y[rows]

    def on_epoch_end(self):
        self.order = self.random.permutation(STEPS)


def dataset(known=True, again=True):
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(EXAMPLES, seed=1, reshuffle_each_iteration=again)
    return (rows if known else rows.filter(lambda x, y: True)).batch(BATCH)


DATA = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": BATCH},
    "a data set": lambda: {"x": dataset(), "shuffle": False},
    "a data set of unknown size": lambda: {"x": dataset(known=False, again=False), "shuffle": False},
    "an endless data set": lambda: {"x": dataset().repeat(), "steps_per_epoch": 4, "shuffle": False},
    "half an epoch at a time": lambda: {"x": dataset(), "steps_per_epoch": STEPS // 2, "epochs": 6, "shuffle": False},
    "a PyDataset": lambda: {"x": Shuffled(), "shuffle": False},
}
RUNS_OUT = pytest.mark.filterwarnings("ignore:.*[Yy]our input ran out of data")
KINDS = [pytest.param(data, marks=RUNS_OUT) if "unknown" in data else data for data in DATA]


def make_model(kind=keras.Model, steps=1):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    inputs = keras.Input((6,))
    hidden = layers.Dropout(0.3)(layers.BatchNormalization()(layers.Dense(8, activation="relu")(inputs)))
    model = kind(inputs, layers.Dense(1)(hidden))
    optimizer = keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=None)
    model.compile(optimizer, "mse", metrics=["mae"] if kind is keras.Model else None, steps_per_execution=steps)
    return model


def make_unbuilt():
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model


def train(folder, *interruptions, data="arrays", make=make_model, save_freq="epoch", epochs=EPOCHS, **arguments):
    """Trains, until it has ended, however often it is interrupted. Returns model and history."""

    def fit(interruption):
        model = make()
        backup = BackupAndRestore(folder, save_freq=save_freq, delete_checkpoint=False, **arguments)
        history = model.fit(
            **({"epochs": epochs} | DATA[data]()), callbacks=callbacks(backup, interruption),
            validation_data=(X[:16], Y[:16]), validation_batch_size=BATCH, verbose=0,
        )  # fmt: skip
        return model, history

    return until_it_has_ended(fit, interruptions)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The undisturbed training on arrays."""
    return train(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("data", ["arrays", "an endless data set", "a PyDataset"])
def test_interrupted_and_resumed_is_uninterrupted(tmp_path, data, whole):
    expected = whole if data == "arrays" else train(tmp_path / "whole", data=data)
    skip = {"skip_batches": True} if DATA[data]().get("steps_per_epoch") else {}
    check_same(expected, train(tmp_path / "broken", Interrupt(7, crash), Interrupt(8, preempt), data=data, **skip))


@pytest.mark.parametrize("data", KINDS)
def test_inside_an_epoch_by_skipping(tmp_path, data, whole):
    expected = whole if data == "arrays" else train(tmp_path / "whole", data=data)
    interruptions = Interrupt(8, crash), Interrupt(3, preempt), Interrupt(1, preempt)
    check_same(expected, train(tmp_path / "broken", *interruptions, data=data, save_freq=2, skip_batches=True))


@pytest.mark.parametrize("kind", ["several steps a call", "a train_step of its own", "not built", "eager"])
def test_models_of_all_kinds(tmp_path, kind):
    def eager():
        model = make_model()
        model.run_eagerly = True
        return model

    make = {
        "several steps a call": lambda: make_model(steps=4),
        "a train_step of its own": lambda: make_model(OwnStep),
        "not built": make_unbuilt,
        "eager": eager,
    }[kind]
    interruptions = Interrupt(3, preempt), Interrupt(1, preempt, "test")
    expected = train(tmp_path / "whole", make=make, epochs=2)
    arguments = {"save_freq": "4 steps", "skip_batches": True, "epochs": 2}
    check_same(expected, train(tmp_path / "broken", *interruptions, make=make, **arguments))


@pytest.mark.parametrize("skip", [False, True])
def test_an_interrupted_evaluation_begins_anew(tmp_path, skip, whole):
    interruptions = Interrupt(1, preempt, "test"), Interrupt(4, crash, "test"), Interrupt(2, preempt, "test")
    check_same(whole, train(tmp_path, *interruptions, skip_batches=skip))


def test_what_a_callback_does_at_the_end_of_an_epoch_is_saved_with_it(tmp_path, whole):
    check_same(whole, train(tmp_path, Interrupt(1, preempt, "epoch"), Interrupt(1, crash, "epoch")))


def test_a_callback_alone_is_called_in_the_main_thread(tmp_path):
    def fit(folder, epochs):
        backup = BackupAndRestore(folder, 2, skip_batches=True, delete_checkpoint=False)
        model = make_model()
        history = model.fit(X, Y, BATCH, epochs=epochs, callbacks=backup, validation_data=(X, Y), verbose=0)
        return model, history

    fit(tmp_path / "broken", 1)
    check_same(fit(tmp_path / "whole", 2), fit(tmp_path / "broken", 2))


def test_an_ended_training_does_not_train_again_and_a_longer_one_goes_on(tmp_path, whole):
    ended = train(tmp_path, epochs=2)
    again = train(tmp_path, epochs=2)
    assert again[1].history == ended[1].history
    assert train(tmp_path)[1].history == whole[1].history


def test_a_training_that_was_stopped_stays_stopped(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 0

    def fit():
        backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
        return make_model().fit(X, Y, BATCH, epochs=5, callbacks=[backup, Stop()], verbose=0)

    assert fit().epoch == [0]
    assert fit().epoch == [0]


def test_the_place_does_not_leak_into_a_later_fit(tmp_path):
    with pytest.raises(Crash):
        make_model().fit(X, Y, epochs=3, callbacks=[BackupAndRestore(tmp_path), Interrupt(3, crash)], verbose=0)
    model = make_model()
    assert model.fit(X, Y, epochs=3, callbacks=[BackupAndRestore(tmp_path)], verbose=0).epoch == [0, 1, 2]
    assert model._initial_epoch is None
    assert model.fit(X, Y, epochs=2, verbose=0).epoch == [0, 1]
    assert list(tmp_path.glob("*")) == []


def test_the_same_callback_in_both_kinds_of_fit(tmp_path, whole):
    backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
    assert make_model().fit(X, Y, BATCH, epochs=1, callbacks=[backup], verbose=0).epoch == [0]
    assert tfdist.fit(make_model(), X, Y, BATCH, epochs=2, callbacks=[backup], verbose=0).epoch == [0, 1]
    assert make_model().fit(X, Y, BATCH, epochs=3, callbacks=[backup], verbose=0).epoch == [0, 1, 2]


@pytest.mark.parametrize("when", ["train", "test", "epoch"])
def test_signals_are_as_before_after_a_training_that_fails(tmp_path, when):
    before = signal.getsignal(signal.SIGTERM)
    callbacks = [BackupAndRestore(tmp_path), Interrupt(1, crash, when)]
    with pytest.raises(Crash):
        make_model().fit(X, Y, validation_data=(X, Y), callbacks=callbacks, verbose=0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_preemption_inside_an_epoch_says_from_where_the_training_goes_on(tmp_path, caplog):
    def fit(folder, **arguments):
        callbacks = [BackupAndRestore(folder, **arguments), Interrupt(8, preempt)]
        with pytest.raises(tfdist.Preempted) as preempted:
            make_model().fit(X, Y, BATCH, epochs=EPOCHS, callbacks=callbacks, verbose=0)
        assert preempted.value.code == 75
        return str(preempted.value)

    assert "step 8, in an epoch that begins anew, after step 6" in fit(tmp_path / "epochs")
    assert "step 8, which is saved" in fit(tmp_path / "inside", skip_batches=True)
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "inside", skip_batches=True)
    assert "Read 2 batches again" in caplog.text
    with pytest.raises(tfdist.Preempted):
        make_model().fit(
            X,
            Y,
            BATCH,
            callbacks=[BackupAndRestore(tmp_path / "a", skip_batches=True), Interrupt(2, preempt)],
            verbose=0,
        )
    with pytest.raises(tfdist.UnsupportedError, match="skip_batches=True"):
        train(tmp_path / "a")


def test_data_that_goes_on_over_epochs_begins_anew_with_a_word_unless_batches_are_skipped(tmp_path, caplog):
    train(tmp_path, Interrupt(7, crash), data="an endless data set")
    assert "the data begins anew, though 4 batches" in caplog.text


@pytest.mark.parametrize("save_freq", [3, "10 minutes", False])
def test_places_inside_an_epoch_are_refused_unless_batches_may_be_skipped(tmp_path, save_freq):
    with pytest.raises(tfdist.UnsupportedError, match=r"skip_batches=True, or call tfdist\.fit"):
        make_model().fit(X, Y, callbacks=[BackupAndRestore(tmp_path, save_freq)], verbose=0)


def test_another_data_or_place_is_refused(tmp_path):
    def fit(batch, initial_epoch=0, *more):
        callbacks = [BackupAndRestore(tmp_path, skip_batches=True), *more]
        make_model().fit(X, Y, batch, epochs=3, initial_epoch=initial_epoch, callbacks=callbacks, verbose=0)

    with pytest.raises(tfdist.Preempted):
        fit(BATCH, 0, Interrupt(3, preempt))
    with pytest.raises(tfdist.CheckpointError, match="batch_size was 8 and is 4"):
        fit(4)
    with pytest.raises(tfdist.CheckpointError, match="initial_epoch"):
        fit(BATCH, 1)


def test_a_loop_of_another_kind_is_refused(tmp_path):
    model = make_model()
    container = keras.callbacks.CallbackList([BackupAndRestore(tmp_path)], model=model, epochs=1)
    with pytest.raises(tfdist.UnsupportedError, match=r"neither tfdist\.fit"):
        container.on_train_begin()
    backup = BackupAndRestore(tmp_path)
    with pytest.raises(tfdist.UnsupportedError, match="RollbackOnSpike"):
        model.fit(X, Y, callbacks=[backup, RollbackOnSpike(backup, 10)], verbose=0)


def on_two_devices(folder):
    """Interrupted and not, under MirroredStrategy."""
    strategy = strategies.make("mirrored")

    def make():
        with strategy.scope():
            return make_model()

    whole = train(f"{folder}/whole", make=make, epochs=2)
    interruptions = Interrupt(8, preempt), Interrupt(1, preempt, "test")
    arguments = {"save_freq": 4, "skip_batches": True, "epochs": 2}
    check_same(whole, train(f"{folder}/broken", *interruptions, make=make, **arguments))
    return len(strategy.extended.worker_devices)


@pytest.mark.process
def test_under_a_mirrored_strategy(tmp_path):
    assert run_cluster(on_two_devices, 1, (str(tmp_path),), timeout=240) == [2]
