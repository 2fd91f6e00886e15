"""After a spike a training is where one would be that never had the batches that did it."""

import functools
import json
import logging
import math
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tfdist
from tfdist.callbacks import BackupAndRestore, RollbackOnSpike
from tfdist.callbacks.rollback import MeanLoss
from tfdist.checkpoint import Checkpoints, Retention
from tfdist.ledger import read_report
from tfdist.testing import run_cluster

BATCH, BATCHES = 8, 10


class AtStep(keras.callbacks.Callback):
    """Acts once, after a step of this run."""

    def __init__(self, step, act):
        super().__init__()
        self.left, self.act = step, act

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.act(self.model)


class Patient(keras.callbacks.Callback):
    """Waits for each save, so that none is left out because the one before is still being written."""

    every_steps = None

    def on_train_batch_end(self, batch, logs=None):
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.main_thread():
                thread.join()


class Crash(Exception):
    """The training's process breaks down."""


def crash(model):
    raise Crash


def harm(model):
    model.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])


def arrays(poison=None, batches=range(BATCHES)):
    """Some of ten batches; `poison`: what a label is in which of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCHES, BATCH, 3)).astype("float32")
    y = x.sum(axis=-1, keepdims=True)
    for batch, value in (poison or {}).items():
        y[batch, 0] = value
    return x[list(batches)].reshape(-1, 3), y[list(batches)].reshape(-1, 1)


def without(*skipped):
    return arrays(batches=[batch for batch in range(BATCHES) if batch not in skipped])


def stream(data):
    """The same as a data set that does not know its size."""
    return tf.data.Dataset.from_tensor_slices(data).batch(BATCH).filter(lambda x, y: True)


def make_model(strategy=None):
    keras.utils.set_random_seed(3)
    with (strategy or tfdist.make_strategy("single")).scope():
        layers = [keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        made = keras.Sequential(layers)
        made.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return made


def fit(model, data, callbacks=(), steps_per_execution=1, **arguments):
    """The history of a training, in calls of so many steps."""
    given = (data,) if isinstance(data, tf.data.Dataset) else data
    sizes = {} if isinstance(data, tf.data.Dataset) else {"batch_size": BATCH, "shuffle": False}
    return tfdist.fit(
        model, *given, callbacks=list(callbacks), steps_per_execution=steps_per_execution, verbose=0, **sizes,
        **arguments,
    ).history  # fmt: skip


def going_back(folder, save_freq=2, factor=100.0, at_most=3, keep=3, tell=None):
    """The two callbacks, and what makes their saves certain."""
    retention = Retention(keep_last=keep)
    backup = BackupAndRestore(folder, save_freq, retention=retention, delete_checkpoint=False, tell=tell)
    return [Patient(), backup, RollbackOnSpike(backup, factor, at_most)]


def train(data, callbacks=(), **arguments):
    model = make_model()
    history = fit(model, data, callbacks, **arguments)
    return state_of(model), history


@functools.cache
def train_without(*skipped):
    return train(without(*skipped))


def state_of(model):
    return [np.asarray(variable.numpy()) for variable in [*model.variables, *model.optimizer.variables]]


def check_same(one, other):
    for mine, theirs in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert one[1] == other[1]


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 100), st.floats(0, 1e3), st.floats(0, 1e3))
def test_the_mean_of_the_rows_since_is_never_more_than_it_is(before, rows, mean_before, mean):
    average = (mean_before * before + mean * rows) / (before + rows)
    then, now = (MeanLoss(float(np.float32(loss)), n) for loss, n in ((mean_before, before), (average, before + rows)))
    found = now.since(then)
    assert found <= mean * (1 + 1e-6)
    rounding = average * (before + rows) / rows * 1e-6
    assert found == pytest.approx(mean, rel=1e-6, abs=rounding + 1e-9)


@pytest.mark.parametrize(
    ("poisoned", "value", "skipped"), [(4, np.nan, [4]), (5, np.inf, [4, 5]), (4, 1e4, [4]), (9, 1e4, [8, 9])]
)
def test_batches_from_the_checkpoint_to_the_spike_are_skipped(tmp_path, poisoned, value, skipped):
    check_same(train(arrays({poisoned: value}), going_back(tmp_path)), train_without(*skipped))


@pytest.mark.parametrize(("poisoned", "skipped"), [(4, [4]), (9, [8, 9])])
def test_of_a_data_set_of_unknown_size_too(tmp_path, poisoned, skipped):
    found = train(stream(arrays({poisoned: np.nan})), going_back(tmp_path))
    check_same(found, train(stream(without(*skipped))))


def test_all_steps_of_a_call_are_skipped(tmp_path):
    held_out = arrays()
    rest = {"steps_per_execution": 2, "accumulate_steps": 2, "validation_data": held_out}
    found = train(arrays({6: np.nan}), going_back(tmp_path, 4), **rest)
    check_same(found, train(without(4, 5, 6, 7), **rest))


def test_a_loss_within_the_bound_is_no_spike(tmp_path, caplog):
    check_same(train(arrays({4: 10}), going_back(tmp_path, factor=1e3)), train(arrays({4: 10})))
    check_same(train(arrays({4: 1e9}), going_back(tmp_path / "2", factor=math.inf)), train(arrays({4: 1e9})))
    assert "skipped" not in caplog.text


def test_of_another_epoch_than_the_checkpoint_the_batches_that_stay_are_counted(tmp_path):
    weights, history = train(arrays({6: np.nan}), going_back(tmp_path, "epoch"), epochs=2, steps_per_epoch=5)
    model = make_model()
    expected = [fit(model, arrays(batches=batches))["loss"] for batches in (range(5), range(7, 10))]
    check_same((weights, history["loss"]), (state_of(model), [*expected[0], *expected[1]]))


def test_an_epoch_of_which_nothing_stays_has_nan(tmp_path):
    weights, history = train(arrays({9: np.nan}), going_back(tmp_path, "epoch"), epochs=2, steps_per_epoch=5)
    check_same((weights, {name: of[:1] for name, of in history.items()}), train(arrays(batches=range(5))))
    assert np.isnan([history["loss"][1], history["mae"][1]]).all()
    assert Checkpoints(tmp_path).newest().step == BATCHES


def test_a_checkpoint_that_leads_to_harm_again_is_passed_over(tmp_path):
    found = train(arrays(), [AtStep(6, harm), *going_back(tmp_path)])
    check_same(found, train_without(4, 5, 6, 7))  # saved with step 6, seen at batch 6, and at batch 7 once more


def test_so_is_each_one_before_it(tmp_path):
    callbacks = [AtStep(4, harm), AtStep(6, harm), *going_back(tmp_path)]
    folder = tmp_path / "ledger"
    assert np.isfinite(train(arrays(), callbacks, ledger=folder)[0][0]).all()
    assert read_report(folder).epochs[0].missing.count > 0


@pytest.mark.parametrize("kind", [lambda data: data, stream])
def test_the_ledger_has_not_seen_what_is_skipped(tmp_path, kind):
    """The end of the second epoch is harmed and saved, so that it and two steps of the third are taken back."""
    callbacks = [AtStep(2 * BATCHES, harm), *going_back(tmp_path, "epoch")]
    train(kind(arrays()), callbacks, epochs=3, ledger=tmp_path / "ledger")
    epochs = read_report(tmp_path / "ledger").epochs
    assert [epoch.missing.count for epoch in epochs] == [0, BATCHES * BATCH, 2 * BATCH]
    assert [epoch.steps for epoch in epochs] == [BATCHES] * 3
    assert not any(epoch.gaps or epoch.more.count for epoch in epochs)


def test_it_says_what_it_does(tmp_path, caplog):
    events = []
    with caplog.at_level(logging.WARNING):
        train(arrays({5: np.nan}), going_back(tmp_path, tell=lambda event, **values: events.append((event, values))))
    assert ("rollback", {"step": 6, "checkpoint": 4}) in events
    said = [record.message for record in caplog.records if "rollback" in record.name]
    assert len(said) == 1
    assert said[0].startswith("Step 6 (epoch 1, after step 6): the loss is nan, where ")
    assert said[0].endswith(
        "The model is that of step 4 again: 2 batches with 16 examples are skipped. This may happen 2 more time(s)."
    )


def test_it_goes_back_at_most_so_often(tmp_path):
    with pytest.raises(tfdist.LossError, match=r"Step 7 .*: the loss is nan.*gone back 2 time\(s\) already"):
        train(arrays({2: np.nan, 4: np.nan, 6: np.nan}), going_back(tmp_path, at_most=2))
    with Checkpoints(tmp_path).opened(6) as directory:
        model = make_model(tf.distribute.get_strategy())
        model.optimizer.build(model.trainable_variables)
        model.load_weights(f"{directory}/model.weights.h5")
    assert all(np.isfinite(values).all() for values in state_of(model))


@pytest.mark.parametrize(("poison", "keep"), [({0: np.nan}, 3), ({4: np.nan, 5: np.nan}, 1)])
def test_without_a_good_checkpoint_the_training_ends(tmp_path, poison, keep):
    with pytest.raises(tfdist.LossError, match="the loss is nan.*there is no good checkpoint.*Save more often"):
        train(arrays(poison), going_back(tmp_path, keep=keep))


@pytest.mark.parametrize("after", [4, 5, 7])
def test_a_training_that_went_back_is_resumed(tmp_path, after):
    data = arrays({3: np.nan, 6: np.nan})
    with pytest.raises(Crash):
        train(data, [*going_back(tmp_path), AtStep(after, crash)])
    found = train(data, going_back(tmp_path), ledger=tmp_path / "ledger")
    check_same(found, train_without(2, 3, 6))


def test_how_often_it_went_back_is_remembered(tmp_path):
    data = arrays({3: np.nan, 7: np.nan})
    with pytest.raises(Crash):
        train(data, [*going_back(tmp_path, at_most=1), AtStep(7, crash)])
    with pytest.raises(tfdist.LossError, match=r"gone back 1 time\(s\) already"):
        train(data, going_back(tmp_path, at_most=1))


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


def test_what_it_does_not_know_is_refused(tmp_path):
    backup, rollback = going_back(tmp_path)[1:]
    with pytest.raises(tfdist.UserError, match="not among the callbacks"):
        train(arrays(), [rollback])
    with pytest.raises(tfdist.UnsupportedError, match="Call tfdist.fit"):
        make_model().fit(*arrays(), callbacks=[going_back(tmp_path)[2]], verbose=0)
    own = OwnStep([keras.Input((3,)), keras.layers.Dense(1)])
    own.compile("sgd", "mse")
    with pytest.raises(tfdist.UnsupportedError, match="train_step"):
        fit(own, arrays(), [backup, rollback])


@pytest.mark.parametrize("arguments", [{"factor": 1}, {"factor": math.nan}, {"at_most": 0}, {"at_most": 1.5}])
def test_wrong_settings_are_refused(tmp_path, arguments):
    with pytest.raises(tfdist.ConfigError, match=f"{next(iter(arguments))}=.*: .*"):
        going_back(tmp_path, **arguments)


def train_on_workers(folder):
    """Once with a poisoned batch and once without it, and what the ledger of the first has not seen."""
    strategy = tfdist.make_strategy()
    found = []
    for data, callbacks in ((arrays({5: np.nan, 9: np.nan}), going_back(folder)), (without(4, 5, 8, 9), [])):
        model = make_model(strategy)
        history = fit(model, data, callbacks, ledger=f"{folder}/ledger-{len(found)}")
        found.append(([weight.tolist() for weight in state_of(model)], history))
    return json.dumps(found)


@pytest.mark.process
def test_all_workers_go_back(tmp_path):
    first, second = run_cluster(train_on_workers, 2, (str(tmp_path),), timeout=240)
    spiked, expected = json.loads(first)
    assert spiked == expected
    assert first == second
    epoch = read_report(tmp_path / "ledger-0").epochs[0]
    assert (epoch.missing.count, epoch.steps, epoch.gaps) == (4 * BATCH, BATCHES, ())
