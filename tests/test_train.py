"""The door `python -m tfdist.train`: what it refuses and how, what it leaves, and what it does when a peer dies."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import zipfile

import keras
import numpy as np
import pytest

from tests.full_disk import full_disk
from tfdist.checkpoint import Checkpoints
from tfdist.errors import ConfigError
from tfdist.launch.local import local_clusters
from tfdist.ledger import read_report
from tfdist.task import find_task, make_task
from tfdist.train import main
from tfdist.workdir import Workdir, read_lines
from tfdist.writers import JsonlWriter

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = str(ROOT / "configs" / "digits.py")
TWO_WORKERS = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
RATE = {"warmup": "1 epoch", "schedule": "step", "boundaries": "2 epochs"}
SMALL = ["--config.epochs=3", "--config.task.width=4", *(f"--config.learning_rate.{k}={v}" for k, v in RATE.items())]


def start(arguments, cluster=None, environ=None, **kwargs):
    tf_config = cluster.to_tf_config() if cluster else ""
    environ = {**os.environ, "TF_CONFIG": tf_config, "COLUMNS": "80", **(environ or {})}
    command = [sys.executable, "-m", "tfdist.train", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )


def finish(processes, timeout=300):
    """`(exit code, standard output, standard error)` of each; no process is left behind."""
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
        return [(process.returncode, *output) for process, output in zip(processes, outputs)]
    finally:
        for process in processes:
            process.kill()


def flags(workdir):
    return [f"--config={CONFIG}", f"--workdir={workdir}"]


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--config="], {}, "--config is not set. Give --config=PATH."),
        (["--workdir="], {}, "--workdir is not set. Give --workdir=PATH."),
        (["--strategy=mirored"], {}, "flag --strategy=mirored: value should be one of <auto|single|mirrored|"),
        (["--stratgy=auto"], {}, "Unknown command line flag 'stratgy'. Did you mean: strategy ?"),
        (["fast"], {}, "'fast' is no flag. Give --config, --workdir, --strategy and --config.NAME=VALUE."),
        (["--config=configs/none.py"], {}, "--config=configs/none.py: there is no such file."),
        (["--config.optimzer=adam"], {}, "optimzer: there is no such setting; did you mean 'optimizer'?"),
        (
            ["--config.task.name=examples.digit"],
            {},
            "task.name='examples.digit': there is no such module; did you mean",
        ),
        (["--config.task.name=exmples.digits"], {}, "task.name='exmples.digits': there is no such module; Start from"),
        (["--workdir=/proc/none/digits"], {}, "--workdir=/proc/none/digits: No such file or directory."),
        ([], {"TF_CONFIG": "{"}, "TF_CONFIG"),
        (["--strategy=mirrored"], {"TF_CONFIG": TWO_WORKERS}, "strategy 'mirrored' serves one process"),
        (["--strategy=ps"], {}, "strategy 'ps'"),
        (
            ["--config.checkpoint.every=never"],
            {"TF_CONFIG": TWO_WORKERS.replace('"task": {"type": "worker"', '"task": {"type": "evaluator"')},
            "checkpoint.every='never' with an evaluator: it evaluates checkpoints, and there are none. Set",
        ),
    ],
)
def test_wrong_input_ends_with_code_64_and_one_line(tmp_path, monkeypatch, capsys, arguments, environ, message):
    monkeypatch.setenv("TF_CONFIG", "")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as exit_:
        main(["train", *flags(tmp_path), *arguments])
    assert exit_.value.code == 64
    line = capsys.readouterr().err
    assert line.startswith("tfdist: ")
    assert line.count("\n") == 1
    assert message in line


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--config.epochs=0", "tfdist: epochs=0: the epochs are a whole number, 1 or more."),
        ("--strategy=mirrored", "tfdist: strategy 'mirrored' serves one process, and the cluster has 2 workers"),
    ],
)
def test_mistake_is_refused_before_tensorflow_starts(tmp_path, argument, message):
    command = [sys.executable, "-X", "importtime", "-m", "tfdist.train", *flags(tmp_path), argument]
    environ = {**os.environ, "TF_CONFIG": TWO_WORKERS}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=False, text=True, timeout=60)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.returncode == 64
    assert message in done.stderr
    assert "tfdist.config" in imported
    assert not {"tensorflow", "keras", "numpy"} & imported


def test_task_is_checked_for_its_arguments():
    find_task("examples.digits")
    with pytest.raises(ConfigError, match="make_task.width: int = 32.*unexpected keyword argument 'depth'"):
        make_task("examples.digits", {"depth": 3})
    with pytest.raises(ConfigError, match=r"has no make_task\(\)"):
        make_task("examples", {})


def test_file_in_workdir_appears_whole_or_not_at_all(tmp_path):
    workdir = Workdir(str(tmp_path), writes=True)
    workdir.write_json("config.json", {"a": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        workdir.write_json("config.json", {"a": object()})
    assert json.loads((tmp_path / "config.json").read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["config.json"]


def test_a_line_cut_by_a_kill_does_not_take_the_next_one_with_it(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"event": "sta')
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    Workdir(str(tmp_path), writes=True).write_event("start")
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write_scalars(2, {"loss": 0.5})
    writer.close()
    assert json.loads((tmp_path / "events.jsonl").read_text().splitlines()[1])["event"] == "start"
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[2])["step"] == 2


def test_a_full_disk_ends_no_training_for_an_event(tmp_path, caplog):
    workdir = Workdir(str(tmp_path), writes=True)
    workdir.write_event("start")
    with full_disk(20):
        workdir.write_event("save", step=12)
    assert "File too large" in caplog.text
    assert '"event": "save"' in caplog.text
    workdir.write_event("stop")
    assert [line["event"] for line in read_lines(tmp_path / "events.jsonl")] == ["start", "stop"]


@pytest.mark.parametrize(
    ("events", "ended"),
    [
        ([], False), (["start"], False), (["start", "stop"], True), (["start", "stop", "start"], False),
        (["start", "stop", "start", "refused"], True), (["start", "stop", "refused"], True),
        (["start", "start", "refused"], False), (["start", "stop", "start", "start", "refused"], False),
    ],
)  # fmt: skip
def test_a_run_that_was_refused_does_not_undo_an_end(tmp_path, events, ended):
    workdir = Workdir(str(tmp_path), writes=True)
    for event in events:
        workdir.write_event(event)
    assert workdir.has_ended() is ended


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_settings_that_cannot_be_read_are_none(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    assert Workdir(str(tmp_path), writes=True).read_json("config.json") == {}


def test_workdir_of_other_workers_stays_untouched(tmp_path):
    workdir = Workdir(str(tmp_path / "none"), writes=False)
    workdir.write_json("config.json", {})
    workdir.write_event("start")
    workdir.save_model(None)
    assert os.listdir(tmp_path) == []


def check_left(workdir, printed):
    """What a finished run leaves, and what it says about it."""
    names = {"checkpoints", "config.json", "events.jsonl", "metrics.jsonl", "model.keras", "tensorboard"}
    assert set(os.listdir(workdir)) == names
    config = json.loads((workdir / "config.json").read_text())
    assert (config["epochs"], config["task"]) == (3, {"name": "examples.digits", "width": 4})
    metrics = read_lines(workdir / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [12, 24, 36]
    assert {"loss", "accuracy", "val_loss", "learning_rate", "examples_per_second", "step_time"} < set(metrics[-1])
    events = read_lines(workdir / "events.jsonl")
    assert [event["event"] for event in events] == ["start", *["save"] * 3, "evaluation", "stop"]
    assert [event["step"] for event in events[1:4]] == [12, 24, 36]
    assert sorted(os.listdir(workdir / "checkpoints")) == ["step-00000012", "step-00000024", "step-00000036"]
    evaluation = events[-2]
    assert metrics[-1]["val_accuracy"] == evaluation["accuracy"]
    assert "learning rate 0.2: base 0.05 at batch 32, rule linear, global batch 128, warm-up 1 epochs" in printed
    assert f"Held-out accuracy {evaluation['accuracy']:.4f}, loss {evaluation['loss']:.4f} on 360 examples" in printed
    assert f"Results in {workdir}: model.keras, checkpoints/, metrics.jsonl, tensorboard/" in printed
    return evaluation


@pytest.mark.process
def test_two_workers_leave_what_one_device_leaves(tmp_path):
    """The same program on one device and on two workers; a model that stock Keras loads and evaluates alike."""
    alone = finish([start([*flags(tmp_path / "1"), *SMALL])])
    assert alone[0][0] == 0, alone[0][2]
    accumulated = [*SMALL, "--config.accumulate_steps=2", "--strategy=multiworker"]
    both = finish([start([*flags(tmp_path / "2"), *accumulated], cluster) for cluster in local_clusters(2)])
    assert [code for code, _, _ in both] == [0, 0], both
    assert both[1][1] == ""
    one, two = check_left(tmp_path / "1", alone[0][1]), check_left(tmp_path / "2", both[0][1])
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)

    from examples.digits import Digits

    models = [keras.models.load_model(tmp_path / name / "model.keras") for name in "12"]
    for first, second in zip(*(model.get_weights() for model in models)):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
    task = Digits(4)
    assert models[1].evaluate(task.x_held_out, task.y_held_out, verbose=0)[1] == pytest.approx(two["accuracy"])
    assert float(models[1].optimizer.learning_rate) == pytest.approx(0.02)
    with zipfile.ZipFile(tmp_path / "2" / "model.keras") as file:
        assert "tfdist" not in file.read("config.json").decode()  # stock Keras has all that it needs


LINES = """
from ml_collections import ConfigDict

def get_config():
    config = ConfigDict({"batch_size": 8, "epochs": 3, "steps_per_epoch": 4, "writers": ("jsonl",)})
    config.task = ConfigDict({"name": "tests.lines", "folder": FOLDER, "batch_size": 8})
    config.learning_rate = ConfigDict({"base": 1e-4, "base_batch_size": 8})
    config.data = ConfigDict({"ledger": True})
    return config
"""


def test_a_data_set_of_unknown_length_has_epochs_of_stated_steps(tmp_path, capsys):
    """31 lines in batches of 8: an epoch of 4 steps is all of them once, as the ledger shows."""
    (tmp_path / "numbers.txt").write_text("".join(f"{number}\n" for number in range(31)))
    config = tmp_path / "config.py"
    config.write_text(LINES.replace("FOLDER", repr(str(tmp_path))))
    workdir = tmp_path / "run"
    for change, message in {
        "steps_per_epoch=0": "epochs=3: the task's training data does not say.*Set steps_per_epoch",
        "task.batch_size=4": "batch_size=8: the task's data set has batches of 4 rows",
        "drop_remainder=True": "drop_remainder=True: a tf.data.Dataset comes in global batches already",
    }.items():
        done = finish([start([f"--config={config}", f"--workdir={tmp_path / 'refused'}", f"--config.{change}"])])
        assert done[0][0] == 64
        assert re.search(message, done[0][2]), done[0][2]
    code, printed, errors = finish([start([f"--config={config}", f"--workdir={workdir}"])])[0]
    assert code == 0, errors
    assert "Held-out loss" in printed
    report = read_report(workdir)
    assert report.exactly_once, str(report)
    assert [(epoch.steps, epoch.once) for epoch in report.epochs] == [(4, 31)] * 3


@pytest.mark.process
def test_lost_peer_ends_the_others_with_code_69(tmp_path):
    arguments = [*flags(tmp_path), "--config.epochs=100000", "--config.writers=jsonl", "--config.task.width=4"]
    chief, other = processes = [start(arguments, cluster, start_new_session=True) for cluster in local_clusters(2)]
    try:
        wait_for(tmp_path / "metrics.jsonl", chief)
        other.send_signal(signal.SIGKILL)
        code, _, error = finish([chief])[0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert code == 69, error
    assert "tfdist: worker 0 lost a peer: " in error
    assert not (tmp_path / "model.keras").exists()


@pytest.mark.process
def test_sigterm_has_workers_save_and_leave_with_code_75(tmp_path):
    arguments = [*flags(tmp_path), "--config.epochs=100000", "--config.writers=jsonl", "--config.task.width=4"]
    processes = [start(arguments, cluster, start_new_session=True) for cluster in local_clusters(2)]
    try:
        wait_for(tmp_path / "metrics.jsonl", processes[0])
        processes[1].send_signal(signal.SIGTERM)
        done = finish(processes, timeout=60)
    finally:
        for process in processes:
            process.kill()
    assert [code for code, *_ in done] == [75, 75], done
    told = read_lines(tmp_path / "events.jsonl")[-1]
    assert (told["event"], told["reason"]) == ("preemption", "worker 1: SIGTERM")
    assert all(f"tfdist: Preempted (worker 1: SIGTERM) after step {told['step']}" in error for _, _, error in done)
    assert Checkpoints(tmp_path / "checkpoints").newest().step == told["step"]


def test_interrupted_training_goes_on_and_a_finished_one_is_not_trained_again(tmp_path):
    arguments = [*flags(tmp_path), *SMALL, "--config.epochs=60", "--config.writers=jsonl"]
    first = start(arguments)
    try:
        wait_for(tmp_path / "metrics.jsonl", first)
        first.send_signal(signal.SIGTERM)
        code, _, error = finish([first])[0]
    finally:
        first.kill()
    assert code == 75, error
    events = read_lines(tmp_path / "events.jsonl")
    stopped = events[-1]["step"]
    assert (events[-1]["event"], 12 <= stopped < 720) == ("preemption", True), events[-1]

    code, printed, error = finish([start(arguments)])[0]
    assert code == 0, error
    later = read_lines(tmp_path / "events.jsonl")[len(events) :]
    names = [event["event"] for event in later]
    assert (names[:2], later[1]["step"], names[-2:]) == (["start", "restore"], stopped, ["evaluation", "stop"])
    assert "other settings" not in error
    metrics = (tmp_path / "metrics.jsonl").read_text()
    assert [row["step"] for row in read_lines(tmp_path / "metrics.jsonl")] == list(range(12, 721, 12))

    code, again, error = finish([start([*arguments, "--config.checkpoint.keep_last=2"])])[0]
    assert code == 0, error
    assert "the run before had other settings; now checkpoint.keep_last: 3 -> 2." in error
    assert (tmp_path / "metrics.jsonl").read_text() == metrics
    assert f"The training in {tmp_path} had ended before: nothing was trained." in again
    assert "nothing was trained" not in printed
    held_out = re.compile(r"Held-out .* after 60 epochs")
    assert held_out.search(again)[0] == held_out.search(printed)[0]


def test_metrics_of_a_run_that_was_lost_before_its_first_checkpoint_are_dropped(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 12}\n')
    code, _, error = finish([start([*flags(tmp_path), *SMALL, "--config.epochs=2"])])[0]
    assert code == 0, error
    assert [row["step"] for row in read_lines(tmp_path / "metrics.jsonl")] == [12, 24]


def test_a_signal_before_the_training_ends_the_process_at_once(tmp_path):
    (tmp_path / "told.py").write_text("import os, time\nos.kill(os.getpid(), 15)\ntime.sleep(300)\n")
    config = tmp_path / "config.py"
    config.write_text(LINES.replace("FOLDER", "''").replace("tests.lines", "told"))
    environ = {"PYTHONPATH": str(tmp_path)}
    code, _, error = finish([start([f"--config={config}", f"--workdir={tmp_path}"], environ=environ)])[0]
    assert code == 75, error
    assert "SIGTERM: there is nothing to save, so the process ends at once, with code 75." in error


def wait_for(path, process, seconds=240):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {path} after {seconds} s"
        time.sleep(0.2)
