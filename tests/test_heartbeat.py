"""What a training says of itself to the launcher: its step, and that it is alive."""

import struct
import subprocess
import sys

import keras
import numpy as np
import pytest

import tfdist
from tfdist import heartbeat


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "heartbeat"
    path.write_bytes(bytes(16))
    monkeypatch.setenv(heartbeat.HEARTBEAT, str(path))
    return path


def numbers(file):
    return struct.unpack("<QQ", file.read_bytes())


def test_a_beat_has_the_step_and_counts(file):
    assert heartbeat.read(file) is None
    heartbeat.beat(0)
    assert (heartbeat.read(file), numbers(file)) == (0, (1, 1))
    heartbeat.beat(1000)
    heartbeat.beat()
    assert (heartbeat.read(file), numbers(file)) == (1000, (1001, 3))


def test_rest_is_a_change_without_a_step_and_forgets_none(file):
    heartbeat.beat(7)
    heartbeat.rest()
    assert (heartbeat.read(file), numbers(file)[1]) == (None, 2)
    heartbeat.beat()
    assert heartbeat.read(file) == 7


def test_another_process_is_watched_in_another_file(file, tmp_path, monkeypatch):
    heartbeat.beat(3)
    other = tmp_path / "other"
    other.write_bytes(bytes(16))
    monkeypatch.setenv(heartbeat.HEARTBEAT, str(other))
    heartbeat.beat()
    assert (heartbeat.read(file), heartbeat.read(other)) == (3, 0)


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_a_file_that_is_not_the_launchers_ends_no_training(tmp_path, monkeypatch, caplog, content):
    path = tmp_path / "heartbeat"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(heartbeat.HEARTBEAT, str(path))
    heartbeat.beat(1)
    assert f"TFDIST_HEARTBEAT={path}: " in caplog.text
    assert not path.exists() or path.read_bytes() == content


def test_nothing_is_written_without_the_variable(monkeypatch):
    monkeypatch.delenv(heartbeat.HEARTBEAT, raising=False)
    heartbeat.beat(1)
    heartbeat.rest()


def test_it_survives_the_process_that_is_killed(file):
    program = "import os; from tfdist import heartbeat; heartbeat.beat(41); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == -9
    assert heartbeat.read(file) == 41


class Seen(keras.callbacks.Callback):
    """Reads the heartbeat where the launcher could."""

    def __init__(self, file):
        super().__init__()
        self.file, self.train, self.test = file, [], []

    def on_train_batch_end(self, batch, logs=None):
        self.train.append(heartbeat.read(self.file))

    def on_test_batch_end(self, batch, logs=None):
        self.test.append(numbers(self.file))


def test_training_evaluation_and_prediction_beat_and_rest_when_they_end(file):
    x, y = np.ones((10, 2), "float32"), np.ones((10, 1), "float32")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen = Seen(file)
    tfdist.fit(model, x, y, batch_size=4, epochs=2, validation_data=(x, y), callbacks=[seen], verbose=0)
    assert seen.train == [1, 2, 3, 4, 5, 6]
    states, beats = zip(*seen.test)
    assert states == (4,) * 3 + (7,) * 3  # an evaluation does not change the step
    assert list(beats) == sorted(set(beats))
    for call in (lambda: tfdist.evaluate(model, x, y, verbose=0), lambda: tfdist.predict(model, x, verbose=0)):
        before = numbers(file)
        call()
        assert numbers(file) == (0, before[1] + 2)
        assert before[0] == 0
