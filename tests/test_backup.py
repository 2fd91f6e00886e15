"""BackupAndRestore in `tfdist.fit`, in one process: an interrupted training goes on as if nothing had been."""

import json
import pathlib
import shutil
import signal
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tests.interruptions import Crash, Interrupt, OwnStep, callbacks, check_same, crash, preempt, until_it_has_ended
from tfdist.callbacks import BackupAndRestore
from tfdist.ledger import read_report

EXAMPLES, BATCH, EPOCHS = 44, 8, 3
STEPS = 6  # in an epoch, the last one of four rows
RANDOM = np.random.RandomState(0)
X, Y = RANDOM.randn(EXAMPLES, 6).astype("float32"), RANDOM.randn(EXAMPLES, 1).astype("float32")


def make_model(kind=keras.Model):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    inputs = keras.Input((6,))
    hidden = layers.Dropout(0.3)(layers.BatchNormalization()(layers.Dense(8, activation="relu")(inputs)))
    model = kind(inputs, layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=4), "mse", metrics=["mae"])
    return model


def stream(known=True):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(EXAMPLES, seed=1)
    return (dataset if known else dataset.filter(lambda x, y: True)).batch(BATCH)


DATA = {
    "arrays": lambda: (tfdist.data.from_arrays(X, Y, shuffle=True), {"batch_size": BATCH}),
    "a data set": lambda: (stream(), {}),
    "a data set of unknown size": lambda: (stream(known=False), {}),
    "an endless data set": lambda: (stream().repeat(), {"steps_per_epoch": STEPS}),
    "half an epoch at a time": lambda: (
        tfdist.data.from_arrays(X, Y, shuffle=True),
        {"batch_size": BATCH, "steps_per_epoch": STEPS // 2},
    ),
}


class TwoOptimizers(keras.Model):
    """A model that builds an optimizer of its own in its train_step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.second = keras.optimizers.Adam(0.01)

    def train_step(self, data):
        x, y = data
        for optimizer in (self.optimizer, self.second):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"own": loss}


class Nudge(keras.callbacks.Callback):
    """Changes the learning rate before each step."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate.assign(self.model.optimizer.learning_rate * 0.98)


def train(folder, *interruptions, data="arrays", kind=keras.Model, save_freq=4, epochs=EPOCHS, more=list, **arguments):
    """Trains, until it has ended, however often it is interrupted. Returns model and history."""

    def fit(interruption):
        model = make_model(kind)
        given, size = DATA[data]()
        backup = BackupAndRestore(folder, save_freq=save_freq, delete_checkpoint=False)
        history = tfdist.fit(
            model, given, epochs=epochs, callbacks=callbacks(backup, interruption, *more()),
            validation_data=(X[:9], Y[:9]), verbose=0, **size, **arguments,
        )  # fmt: skip
        return model, history

    return until_it_has_ended(fit, interruptions)


def steps(folder):
    return sorted(int(path.name[5:]) for path in pathlib.Path(folder).glob("step-*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The undisturbed training on arrays."""
    return train(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("data", DATA)
def test_interrupted_and_resumed_is_uninterrupted(tmp_path, data, whole):
    expected = whole if data == "arrays" else train(tmp_path / "whole", data=data)
    check_same(expected, train(tmp_path / "broken", Interrupt(7, crash), Interrupt(3, preempt), data=data))


def test_an_interrupted_evaluation_begins_anew(tmp_path, whole):
    interruptions = Interrupt(3, crash, "test"), Interrupt(2, preempt, "test")
    broken = train(tmp_path, *interruptions, validation_batch_size=2)
    assert broken[1].history["loss"] == whole[1].history["loss"]
    np.testing.assert_allclose(broken[1].history["val_loss"], whole[1].history["val_loss"], rtol=1e-5)


def test_a_train_step_of_the_models_own(tmp_path):
    expected = train(tmp_path / "whole", kind=OwnStep)
    check_same(expected, train(tmp_path / "broken", Interrupt(7, crash), Interrupt(9, preempt), kind=OwnStep))


def test_optimizers_that_a_train_step_builds(tmp_path):
    expected = train(tmp_path / "whole", kind=TwoOptimizers)
    broken = train(tmp_path / "broken", Interrupt(7, crash), kind=TwoOptimizers)
    check_same(expected, broken)
    for mine, theirs in zip(expected[0].second.variables, broken[0].second.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_hooks_before_a_step_are_called_once_for_each(tmp_path):
    expected = train(tmp_path / "whole", more=lambda: [Nudge()])
    check_same(expected, train(tmp_path / "broken", Interrupt(7, preempt), more=lambda: [Nudge()]))


def test_a_model_checkpoint_within_an_epoch_goes_on(tmp_path):
    def more():
        return [keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", "mae", save_best_only=True, save_freq=5)]

    check_same(train(tmp_path / "whole", more=more), train(tmp_path / "broken", Interrupt(9, crash), more=more))


@pytest.mark.parametrize("save_freq", ["epoch", "0.0001 seconds", False])
def test_when_it_saves_changes_nothing(tmp_path, save_freq, whole):
    check_same(whole, train(tmp_path, Interrupt(7, preempt), Interrupt(7, crash), save_freq=save_freq))


def test_a_notice_while_data_is_waited_for(tmp_path):
    begun, told = [], []
    begin = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: begun.append(batch))

    def batches():
        for start in range(0, EXAMPLES, BATCH):
            if begun and not told:
                told.append(start)
                preempt()  # in a thread of tf.data, while the training waits for this batch
            yield X[start : start + BATCH], Y[start : start + BATCH]

    def fit():
        spec = tuple(tf.TensorSpec((None, *array.shape[1:]), tf.float32) for array in (X, Y))
        data, model = tf.data.Dataset.from_generator(batches, output_signature=spec), make_model()
        backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
        return model, tfdist.fit(model, data, epochs=2, callbacks=[backup, begin], verbose=0)

    with pytest.raises(tfdist.Preempted):
        fit()
    assert told and steps(tmp_path)
    resumed = fit()
    check_same(resumed, fit())
    assert resumed[1].epoch == [0, 1]


def test_a_notice_in_the_first_compilation(tmp_path):
    begun, told = [], []

    class Traced(keras.Model):
        def compute_loss(self, *args, **kwargs):
            if begun and not told:
                told.append(True)
                preempt()
            return super().compute_loss(*args, **kwargs)

    begin = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: begun.append(batch))
    with pytest.raises(tfdist.Preempted):
        tfdist.fit(make_model(Traced), X, Y, BATCH, callbacks=[BackupAndRestore(tmp_path), begin], verbose=0)
    assert told and steps(tmp_path) == [1]


def test_every_example_is_trained_on_once(tmp_path):
    train(tmp_path / "checkpoints", Interrupt(7, crash), Interrupt(5, preempt), ledger=tmp_path / "ledger")
    report = read_report(tmp_path / "ledger")
    assert report.exactly_once
    assert len(report.epochs) == EPOCHS


def test_an_ended_training_does_not_train_again_and_a_longer_one_goes_on(tmp_path, whole):
    ended = train(tmp_path, epochs=2)
    check_same(ended, train(tmp_path, epochs=2))
    check_same(whole, train(tmp_path))


def test_a_training_that_was_stopped_stays_stopped(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 0

    def fit():
        backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
        return tfdist.fit(make_model(), X, Y, BATCH, epochs=5, callbacks=[backup, Stop()], verbose=0)

    assert fit().epoch == [0]
    assert fit().epoch == [0]


def test_the_weights_load_in_stock_keras(tmp_path):
    model = make_model()
    model.compile("adam", "mse")
    backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
    tfdist.fit(model, X, Y, BATCH, callbacks=[backup], verbose=0)
    other = keras.models.clone_model(model)
    other.load_weights(tmp_path / f"step-{STEPS:08d}" / "model.weights.h5")
    np.testing.assert_array_equal(other.predict(X, verbose=0), model.predict(X, verbose=0))


def test_which_stay(tmp_path):
    def fit(folder, **arguments):
        backup = BackupAndRestore(folder, 4, **arguments)
        tfdist.fit(make_model(), X, Y, BATCH, epochs=2, callbacks=[backup], verbose=0)
        return steps(folder)

    assert fit(tmp_path / "none") == []
    assert fit(tmp_path / "one", delete_checkpoint=False) == [12]
    assert fit(tmp_path / "two", delete_checkpoint=False, double_checkpoint=True) == [8, 12]
    best = tfdist.checkpoint.Retention(keep_last=1, keep_best=1, best_metric="loss", best_mode="max")
    assert len(fit(tmp_path / "best", delete_checkpoint=False, retention=best)) == 2


def test_the_metrics_of_a_checkpoint_are_those_of_its_epoch(tmp_path):
    _, history = train(tmp_path, save_freq="epoch")
    manifest = json.loads((tmp_path / f"step-{EPOCHS * STEPS:08d}" / "manifest.json").read_text())
    assert manifest["metrics"]["val_loss"] == history.history["val_loss"][-1]


def test_a_changed_model_is_refused_with_what_differs(tmp_path):
    train(tmp_path, epochs=1)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(9), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with pytest.raises(tfdist.CheckpointError, match=r"(?s)9.*8"):
        tfdist.fit(model, X, Y, BATCH, callbacks=[BackupAndRestore(tmp_path)], verbose=0)


def test_other_batches_are_refused_inside_of_an_epoch_alone(tmp_path):
    def fit(batch, folder, *more):
        backup = BackupAndRestore(folder, "epoch", delete_checkpoint=False)
        return tfdist.fit(make_model(), X, Y, batch, epochs=3, callbacks=[backup, *more], verbose=0)

    with pytest.raises(tfdist.Preempted):
        fit(BATCH, tmp_path / "inside", Interrupt(8, preempt))
    with pytest.raises(tfdist.CheckpointError, match="batch_size was 8 and is 4"):
        fit(4, tmp_path / "inside")
    with pytest.raises(Crash):
        fit(BATCH, tmp_path / "between", Interrupt(8, crash))
    assert fit(4, tmp_path / "between").epoch == [0, 1, 2]


def test_a_folder_that_cannot_be_written_ends_the_training_after_some_saves(tmp_path):
    folder, steps_done = tmp_path / "checkpoints", []
    backup = BackupAndRestore(folder, 2, max_failed_saves=2)
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: folder.touch(),
        on_train_batch_end=lambda batch, logs: steps_done.append(batch),
    )
    with pytest.raises(tfdist.CheckpointError, match="2 in a row"):
        tfdist.fit(make_model(), X, Y, BATCH, epochs=EPOCHS, callbacks=[backup, count], verbose=0)
    assert len(steps_done) == 6


def test_a_callback_may_be_used_again_once_the_folder_is_mended(tmp_path):
    folder = tmp_path / "checkpoints"
    backup = BackupAndRestore(folder, 1, max_failed_saves=1)
    block = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: folder.touch())
    with pytest.raises(tfdist.CheckpointError, match="1 in a row"):
        tfdist.fit(make_model(), X, Y, BATCH, callbacks=[backup, block], verbose=0)
    folder.unlink()
    assert tfdist.fit(make_model(), X, Y, BATCH, callbacks=[backup], verbose=0).epoch == [0]


def test_what_goes_wrong_beside_the_saves_does_not_end_the_training(tmp_path, caplog):
    def tell(event, **values):
        raise RuntimeError("the dashboard is down")

    def replace(logs):
        while "the dashboard is down" not in caplog.text:  # the save is through
            time.sleep(0.01)
        shutil.rmtree(tmp_path)
        tmp_path.touch()

    backup = BackupAndRestore(tmp_path, "epoch", max_failed_saves=2, tell=tell)
    callbacks = [keras.callbacks.LambdaCallback(on_train_end=replace), backup]
    assert tfdist.fit(make_model(), X, Y, BATCH, callbacks=callbacks, verbose=0).epoch == [0]
    assert "the dashboard is down" in caplog.text
    assert "could not be removed" in caplog.text


def test_a_state_that_cannot_be_had_is_named(tmp_path):
    class Forgetful(Nudge):
        def get_state(self):
            raise KeyError("lost")

        def set_state(self, state):
            raise AssertionError

    with pytest.raises(tfdist.CheckpointError, match=r"Forgetful cannot be saved: its get_state raises KeyError"):
        tfdist.fit(make_model(), X, Y, BATCH, callbacks=[BackupAndRestore(tmp_path), Forgetful()], verbose=0)


def test_variables_among_the_logs_are_saved_as_numbers(tmp_path):
    class Tell(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["rate"] = self.model.optimizer.learning_rate

    callbacks = [Tell(), BackupAndRestore(tmp_path, delete_checkpoint=False)]
    for _ in range(2):
        history = tfdist.fit(make_model(), X, Y, BATCH, callbacks=callbacks, verbose=0)
    np.testing.assert_allclose(np.asarray(history.history["rate"][0]), 0.01)


def test_a_second_training_with_the_same_callback_starts_where_it_should(tmp_path):
    backup = BackupAndRestore(tmp_path)
    for epochs in (1, 2):
        history = tfdist.fit(make_model(), X, Y, BATCH, epochs=epochs, callbacks=[backup], verbose=0)
        assert history.epoch == list(range(epochs))


def test_signals_are_as_before_after_a_training_that_fails(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Crash):
        tfdist.fit(make_model(), X, Y, callbacks=[BackupAndRestore(tmp_path), Interrupt(1, crash)], verbose=0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_events(tmp_path):
    told = []

    def fit(*more):
        backup = BackupAndRestore(tmp_path, 4, tell=lambda event, **values: told.append((event, values["step"])))
        tfdist.fit(make_model(), X, Y, BATCH, callbacks=[backup, *more], verbose=0)

    with pytest.raises(tfdist.Preempted):
        fit(Interrupt(5, preempt))
    assert told == [("save", 4), ("save", 5), ("preemption", 5)]
    fit()
    assert told[3:] == [("restore", 5)]


@pytest.mark.parametrize(
    ("given", "message"),
    [("", "name one"), ("5 weeks", "500 steps"), (0, "500 steps"), ("auto", "time between failures")],
)
def test_bad_arguments(given, message):
    with pytest.raises(tfdist.ConfigError, match=f"(?i){message}"):
        BackupAndRestore("folder" if given != "" else "", given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_failed_saves": "3"}, "an integer of 1 or above"), ({"grace": "30"}, "seconds above 0"),
        ({"grace": 0}, "seconds above 0"), ({"retention": 3}, "Retention"), ({"tell": 3}, "function"),
        ({"watchers": "azure"}, "gce"), ({"save_freq": True}, "save_freq=True"),
    ],
)  # fmt: skip
def test_arguments_of_the_wrong_kind(arguments, message):
    with pytest.raises(tfdist.ConfigError, match=message):
        BackupAndRestore("folder", **arguments)


def test_two_of_them_are_refused(tmp_path):
    callbacks = [BackupAndRestore(tmp_path / "one"), BackupAndRestore(tmp_path / "two")]
    with pytest.raises(tfdist.UserError, match="Two BackupAndRestore"):
        tfdist.fit(make_model(), X, Y, callbacks=callbacks, verbose=0)


def test_that_nothing_is_left_to_train_is_said(tmp_path, caplog):
    for _ in range(2):
        backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
        tfdist.fit(make_model(), X, Y, BATCH, callbacks=[backup], verbose=0)
    assert "after 1 epoch(s): nothing is left to train" in caplog.text


def test_a_preemption_that_cannot_be_saved_says_so(tmp_path):
    def tell(event, **values):
        raise RuntimeError("the dashboard is down")

    folder = tmp_path / "checkpoints"
    block = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: folder.touch())
    callbacks = [BackupAndRestore(folder, False, tell=tell), block, Interrupt(2, preempt)]
    with pytest.raises(tfdist.Preempted, match="could not be saved"):
        tfdist.fit(make_model(), X, Y, BATCH, callbacks=callbacks, verbose=0)
