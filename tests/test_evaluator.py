"""An evaluator beside a training: what it evaluates, when it ends, and what it leaves."""

import json
import os
import shutil
import signal

import keras
import numpy as np
import pytest

from tests.test_train import SMALL, finish, flags, start
from tfdist.checkpoint import Checkpoints
from tfdist.cluster import Cluster
from tfdist.errors import ConfigError, PeerLostError
from tfdist.evaluator import Results, follow
from tfdist.workdir import Workdir, read_lines
from tfdist.writers import JsonlWriter


class Training:
    """A folder that a training leaves, and a clock whose seconds are lived through by a script of what it does."""

    def __init__(self, folder, script=()):
        self.workdir = Workdir(str(folder), writes=True)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.script, self.now, self.evaluated, self.loaded = list(script), 0.0, [], None

    def save(self, step):
        def write(directory):
            with open(os.path.join(directory, "model.weights.h5"), "w") as file:
                file.write(f"weights {step}")

        self.checkpoints.commit(step, write, progress={}, metrics={}, arrays={})

    def load(self, directory):
        with open(os.path.join(directory, "model.weights.h5")) as file:
            self.loaded = file.read()

    def evaluate(self, step):
        assert self.loaded == f"weights {step}"
        self.evaluated.append(step)

    def wait(self, seconds):
        self.now += seconds
        if self.script:
            self.script.pop(0)(self)

    def follow(self, done=(), timeout=10.0, load=None):
        follow(
            self.workdir, load or self.load, self.evaluate, set(done), timeout, clock=lambda: self.now, wait=self.wait
        )
        return self.evaluated


def ends(training):
    training.workdir.write_event("stop")


def nothing(training):
    pass


def saves(*steps):
    return lambda training: [training.save(step) for step in steps]


def test_each_new_checkpoint_is_evaluated_until_the_training_has_ended(tmp_path):
    assert Training(tmp_path, [nothing, saves(1), saves(2), nothing, ends]).follow() == [1, 2]


def test_what_is_behind_the_newest_is_skipped_and_what_is_done_is_not_done_again(tmp_path):
    training = Training(tmp_path, [saves(5, 6), ends])
    training.save(4)
    assert training.follow(done=[1, 4]) == [6]


def test_the_last_checkpoint_is_evaluated_though_the_training_has_ended(tmp_path):
    training = Training(tmp_path)
    training.save(3)
    ends(training)
    assert training.follow() == [3]


def test_an_end_before_the_last_start_is_none(tmp_path):
    training = Training(tmp_path, [ends])
    ends(training)
    training.workdir.write_event("start")
    training.follow()
    assert training.now > 0


def test_silence_is_an_error_after_the_timeout_which_signs_of_life_put_off(tmp_path):
    def event(training):
        training.workdir.write_event("save")

    training = Training(tmp_path, [nothing] * 4 + [event] + [nothing] * 4 + [saves(7)])
    with pytest.raises(PeerLostError, match="no sign of life of the training for 10 s, and it has not ended"):
        training.follow()
    assert training.evaluated == [7]
    assert 28 < training.now < 36


def test_a_checkpoint_that_goes_away_while_it_is_read_is_passed_over(tmp_path, caplog):
    training = Training(tmp_path, [saves(2), ends])
    training.save(1)

    def load(directory):
        if directory.endswith("step-00000001"):
            shutil.rmtree(directory)
        training.load(directory)

    assert training.follow(load=load) == [2]
    assert "The checkpoint of step 1 could not be read: " in caplog.text


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path):
    training = Training(tmp_path)
    training.save(1)
    ends(training)

    def load(directory):
        if directory.endswith("step-00000001"):
            training.save(1)
        training.load(directory)

    assert training.follow(load=load) == [1]
    assert os.listdir(tmp_path / "checkpoints") == ["step-00000001.1"]


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, caplog):
    training = Training(tmp_path)
    saves(1, 2)(training)
    (tmp_path / "checkpoints" / "step-00000002" / "model.weights.h5").write_text("weights 3")
    ends(training)
    assert training.follow() == [1]
    assert "model.weights.h5 is damaged" in caplog.text


def make_model(value):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.set_weights([np.full((1, 1), value), np.zeros(1)])
    return model


def add(folder, values, mode="min", start=1):
    """Adds results, and returns the weights that are kept."""
    writer = JsonlWriter(folder / "metrics.jsonl")
    results = Results(Workdir(str(folder), writes=True), writer, "val_loss", mode)
    for step, value in enumerate(values, start):
        results.add(step, {"loss": value, "accuracy": 0.5}, make_model(step))
    writer.close()
    model = make_model(0.0)
    if (folder / "best.weights.h5").exists():
        model.load_weights(folder / "best.weights.h5")
    return float(model.get_weights()[0][0, 0]), results


@pytest.mark.parametrize(
    ("values", "mode", "best"),
    [
        ([3.0, 1.0, 2.0], "min", 2),
        ([3.0, 1.0, 5.0], "max", 3),
        ([1.0, 1.0], "min", 1),
        ([float("nan"), 4.0, float("nan")], "min", 2),
        ([float("nan")], "max", 0),
    ],
)
def test_the_best_weights_are_kept(tmp_path, values, mode, best):
    assert add(tmp_path, values, mode)[0] == best
    assert [row["step"] for row in read_lines(tmp_path / "metrics.jsonl")] == list(range(1, len(values) + 1))
    if best:
        expected = {"step": best, "metric": "loss", "mode": mode, "loss": values[best - 1], "accuracy": 0.5}
        assert json.loads((tmp_path / "best.json").read_text()) == expected


def test_a_second_run_knows_what_was_best_and_what_is_done(tmp_path):
    add(tmp_path, [3.0, 1.0])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    kept, results = add(tmp_path, [2.0], start=3)
    assert (kept, results.steps) == (2, {1, 2})
    assert add(tmp_path, [2.0], mode="max", start=4)[0] == 4  # another question, so another best


def test_metric_that_is_not_there_is_refused(tmp_path):
    results = Results(Workdir(str(tmp_path), writes=True), JsonlWriter(tmp_path / "m"), "val_acuracy", "max")
    with pytest.raises(ConfigError, match="best_metric='acuracy': the evaluation has loss, accuracy. Take one"):
        results.add(1, {"loss": 1.0, "accuracy": 0.5}, make_model(0.0))


@pytest.mark.process
def test_evaluator_and_training_side_by_side(tmp_path):
    arguments = [*flags(tmp_path), *SMALL, "--config.optimizer=adam", "--config.checkpoint.keep_last=1"]
    evaluator = Cluster({"worker": ("localhost:1", "localhost:2")}, "evaluator", 0)
    beside, training = finish([start(arguments, evaluator), start(arguments)])
    assert training[0] == 0, training[2]
    assert beside[0] == 0, beside[2]
    rows = read_lines(tmp_path / "evaluator" / "metrics.jsonl")
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps) & {12, 24, 36})
    assert steps[-1] == 36
    trained = {row["step"]: row for row in read_lines(tmp_path / "metrics.jsonl")}
    for row in rows:
        assert row["loss"] == pytest.approx(trained[row["step"]]["val_loss"])
    best = json.loads((tmp_path / "evaluator" / "best.json").read_text())
    assert best["loss"] == min(row["loss"] for row in rows)
    assert f"best loss {best['loss']:.4f} after step {best['step']}." in beside[1]
    from examples.digits import Digits

    model, task = keras.models.load_model(tmp_path / "model.keras", compile=False), Digits(4)
    model.load_weights(tmp_path / "evaluator" / "best.weights.h5")
    model.compile(**task.objective())
    loss = model.evaluate(task.x_held_out, task.y_held_out, verbose=0)[0]
    assert loss == pytest.approx(best["loss"], rel=1e-5)

    again = finish([start(arguments, evaluator)])[0]
    assert again[0] == 0, again[2]
    assert read_lines(tmp_path / "evaluator" / "metrics.jsonl") == rows


@pytest.mark.process
def test_sigterm_ends_an_evaluator_that_waits(tmp_path):
    process = start(flags(tmp_path), Cluster({"worker": ("localhost:1",)}, "evaluator", 0))
    try:
        assert any("Waiting for checkpoints in " in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        code, _, error = finish([process])[0]
    finally:
        process.kill()
    assert code == 75, error
    assert "SIGTERM: there is nothing to save, so the process ends at once" in error
