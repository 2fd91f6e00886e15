"""Callbacks, in plain `keras.Model.fit`, in `tfdist.fit`, and on two logical devices."""

import contextlib
import functools
import json
import re

import keras
import numpy as np
import pytest

import tfdist
from tests.full_disk import full_disk
from tfdist.callbacks import BackupAndRestore, MetricsWriter, WarmUp
from tfdist.errors import ConfigError, UnsupportedError
from tfdist.writers import JsonlWriter, Writer, make_writer

X, Y = np.linspace(-1, 1, 40, dtype="float32").reshape(20, 2), np.arange(20, dtype="float32").reshape(20, 1)


class Recorded(Writer):
    def __init__(self):
        self.rows = []

    def write_scalars(self, step, scalars):
        self.rows.append({"step": step, **scalars})


class Ticks:
    """A clock that goes on by one second at each look."""

    now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


def make_model(learning_rate=0.01, optimizer=keras.optimizers.SGD):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer(learning_rate), "mse", metrics=["mae"])
    return model


def train(model, *callbacks, epochs=2, **kwargs):
    return model.fit(X, Y, batch_size=8, epochs=epochs, verbose=0, shuffle=False, callbacks=list(callbacks), **kwargs)


def test_metrics_are_written_once_an_epoch():
    writer = Recorded()
    schedule = keras.optimizers.schedules.PolynomialDecay(0.01, 6, 0.0)
    history = train(make_model(schedule), MetricsWriter(writer, batch_size=8, examples=20), validation_data=(X, Y))
    assert [row["step"] for row in writer.rows] == [3, 6]
    assert [row["epoch"] for row in writer.rows] == [1, 2]
    for name in ("loss", "mae", "val_loss", "val_mae"):
        assert [row[name] for row in writer.rows] == history.history[name]
    assert [row["learning_rate"] for row in writer.rows] == pytest.approx([0.005, 0.0])


def test_speed_counts_real_rows_and_leaves_the_validation_out():
    writer = Recorded()
    callback = MetricsWriter(writer, batch_size=8, examples=20, clock=Ticks())
    train(make_model(), callback, epochs=1, validation_data=(X, Y))
    # Looks: epoch begin 1, validation from 2 to 3, epoch end 4: two seconds without the validation.
    assert writer.rows[0]["step_time"] == pytest.approx(2 / 3)
    assert writer.rows[0]["examples_per_second"] == pytest.approx(20 / 2)


def test_every_steps_writes_running_averages_across_epochs():
    writer = Recorded()
    train(make_model(), MetricsWriter(writer, batch_size=8, every_steps=2))
    assert [row["step"] for row in writer.rows] == [2, 3, 4, 6, 6]
    assert ["running_loss" in row for row in writer.rows] == [True, False, True, True, False]


def test_metrics_go_to_a_file(tmp_path):
    train(make_model(), MetricsWriter(JsonlWriter(tmp_path / "metrics.jsonl")), epochs=3)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [3, 6, 9]
    assert all(row["step_time"] > 0 and "examples_per_second" not in row for row in rows)


@pytest.mark.parametrize("name", ["jsonl", "tensorboard"])
def test_training_goes_on_without_its_metrics_where_the_disk_is_full(tmp_path, caplog, name):
    callback = MetricsWriter(make_writer([name], tmp_path))
    with full_disk(250):
        history = train(make_model(), callback, epochs=3)
        assert callback.get_state()["steps"] == 0
    assert len(history.history["loss"]) == 3
    assert re.search("The metrics are not written: .*File too large.* The training goes on", caplog.text, re.DOTALL)


def test_what_fits_on_the_disk_is_there(tmp_path):
    with full_disk(250):
        train(make_model(), MetricsWriter(JsonlWriter(tmp_path / "metrics.jsonl")), epochs=3)
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["epoch"] == 1


class Break(keras.callbacks.Callback):
    """Ends the training before the batch `batch` of an epoch."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.at, self.epoch = (epoch, batch), None

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [(1, 0), (1, 1), (1, 2), (2, 1)])
def test_resumed_training_leaves_the_metrics_of_an_undisturbed_one(tmp_path, at):
    def run(name, *others):
        backup = BackupAndRestore(tmp_path / f"{name}.checkpoints", save_freq=2)
        with contextlib.closing(JsonlWriter(tmp_path / name)) as writer:
            callbacks = [MetricsWriter(writer, batch_size=8, every_steps=2), *others, backup]
            tfdist.fit(make_model(), (X, Y), batch_size=8, epochs=3, verbose=0, callbacks=callbacks)

    def rows(name):
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        timed = {"time", "step_time", "examples_per_second"}
        return [{key: value for key, value in line.items() if key not in timed} for line in lines]

    run("undisturbed")
    with pytest.raises(KeyboardInterrupt):
        run("broken", Break(*at))
    run("broken")
    assert rows("broken") == rows("undisturbed")


def test_mixed_precision_optimizer_is_read_through():
    writer = Recorded()
    model = make_model()
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.25)), "mse")
    train(model, MetricsWriter(writer), WarmUp(16, 8, warmup="2 steps", verbose=0), epochs=1)
    assert [row["learning_rate"] for row in writer.rows] == [0.5]


def test_warmup_equals_the_schedule_written_out(capsys):
    warmed, written = make_model(0.01), make_model(keras.optimizers.schedules.CosineDecay(0.01, 4, 1.0, "c", 0.02, 2))
    train(warmed, WarmUp(batch_size=16, base_batch_size=8, warmup="2 steps"))
    train(written)
    assert (
        "learning rate 0.02: base 0.01 at batch 8, rule linear, global batch 16, warm-up 2 steps"
        in capsys.readouterr().out
    )
    np.testing.assert_array_equal(warmed.get_weights()[0], written.get_weights()[0])


def test_warmup_reaches_a_model_that_was_trained_before():
    model = make_model()
    train(model)
    before = model.get_weights()
    train(model, WarmUp(8000, 8, rule="none", warmup=0, start=0.0, verbose=0), epochs=1)
    assert not np.array_equal(before[0], model.get_weights()[0])
    model.optimizer.iterations.assign(0)
    still = model.get_weights()
    callback = WarmUp(16, 8, warmup="2 epochs", verbose=0)
    with pytest.raises(ConfigError, match="must end before the training"):
        train(model, callback, epochs=2)
    np.testing.assert_array_equal(still[0], model.get_weights()[0])


def test_warmup_is_counted_from_the_optimizers_first_step():
    model = make_model(0.5)
    callback = WarmUp(16, 8, warmup="1 epoch", start=0.0, rule="sqrt", verbose=0)
    rates = []

    def look(batch, logs):
        rates.append(float(model.optimizer.learning_rate))

    train(model, callback, keras.callbacks.LambdaCallback(on_train_batch_begin=look))
    peak = 0.5 * 2**0.5
    assert rates == pytest.approx([0, peak / 3, 2 * peak / 3, peak, peak, peak])
    train(model, callback, epochs=1)  # once is enough: the rate stays
    assert float(model.optimizer.learning_rate) == pytest.approx(peak)


def test_warmed_model_loads_in_stock_keras(tmp_path):
    model = make_model()
    train(model, WarmUp(16, 8, warmup="1 epoch", verbose=0))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects={})
    assert type(loaded.optimizer).__name__ == "SGD"
    assert float(loaded.optimizer.learning_rate) == pytest.approx(0.02)


def test_warmup_refuses_an_optimizer_with_a_schedule():
    model = make_model(keras.optimizers.schedules.CosineDecay(0.1, 10))
    with pytest.raises(UnsupportedError, match="has a learning-rate schedule already. Compile it with a number"):
        train(model, WarmUp(16, 8))


def test_warmup_in_epochs_needs_the_steps_of_an_epoch():
    callback = WarmUp(16, 8, warmup="1 epoch")
    callback.set_model(make_model())
    callback.set_params({"epochs": 2, "steps": None, "verbose": 0})
    with pytest.raises(ConfigError, match="Give steps_per_epoch, or the warm-up in steps"):
        callback.on_train_begin()


def test_warmup_reaches_a_model_that_tfdist_trained_before():
    stock, ours = make_model(), make_model()
    for fit in (stock.fit, functools.partial(tfdist.fit, ours)):
        fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[WarmUp(16, 8, "1 epoch", verbose=0)])
    np.testing.assert_allclose(stock.get_weights()[0], ours.get_weights()[0], rtol=1e-5)


def test_metrics_are_written_by_tfdist_fit():
    writer = Recorded()
    callback = MetricsWriter(writer, batch_size=8, examples=20, every_steps=2)
    tfdist.fit(make_model(), X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[callback], validation_data=(X, Y))
    assert [row["step"] for row in writer.rows] == [2, 3, 4, 6, 6]
    assert {"loss", "val_loss", "step_time", "examples_per_second", "learning_rate"} <= set(writer.rows[-1])
