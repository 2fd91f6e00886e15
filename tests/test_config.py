"""Settings: what a config file and overrides resolve to, and what they are refused for."""

import dataclasses
import json

import keras
import pytest

from tfdist.checkpoint import Retention
from tfdist.config import OPTIMIZERS, optimizer_arguments
from tfdist.config_file import changed_settings, make_experiment, read_experiment, to_dict
from tfdist.durations import Duration
from tfdist.errors import ConfigError

CONFIG = """
from ml_collections import ConfigDict

def get_config():
    config = ConfigDict()
    config.task = ConfigDict({"name": "examples.digits", "width": 32})
    config.batch_size = 128
    config.epochs = 20
    config.optimizer = ConfigDict({"name": "sgd", "momentum": 0.9})
    config.learning_rate = ConfigDict({"base": 0.05, "base_batch_size": 32, "warmup": "3 epochs"})
    return config
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.py"
    path.write_text(CONFIG)
    return str(path)


def test_file_is_resolved_with_defaults(config):
    experiment = read_experiment(config)
    assert experiment.task.name == "examples.digits"
    assert experiment.task.arguments == {"width": 32}
    assert experiment.learning_rate.warmup == Duration(3, "epochs")
    assert experiment.precision == "float32"
    assert experiment.scaling.rate == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("override", "read", "expected"),
    [
        ("batch_size=64", lambda e: e.batch_size, 64),
        ("learning_rate.base=1e-3", lambda e: e.learning_rate.base, 1e-3),
        ("learning_rate.base=1", lambda e: e.learning_rate.base, 1),
        ("learning_rate.warmup=7 steps", lambda e: e.learning_rate.warmup, Duration(7, "steps")),
        ("learning_rate.warmup_from=none", lambda e: e.learning_rate.warmup_from, None),
        ("optimizer.nesterov=true", lambda e: e.optimizer.arguments, {"momentum": 0.9, "nesterov": True}),
        ("optimizer=adam", lambda e: (e.optimizer.name, e.optimizer.arguments), ("adam", {})),
        ("task.width=8", lambda e: e.task.arguments["width"], 8),
        ("task.width=a=b", lambda e: e.task.arguments["width"], "a=b"),
        ("writers=console", lambda e: e.writers, ("console",)),
        ("writers=()", lambda e: e.writers, ()),
        ("checkpoint.every=500 steps", lambda e: (e.checkpoint.every, e.checkpoint.saves), ("500 steps", True)),
        ("checkpoint.every=never", lambda e: e.checkpoint.saves, False),
        ("checkpoint.watchers=gce", lambda e: e.checkpoint.watchers, ("gce",)),
        ("data.ledger=true", lambda e: (e.data.ledger, e.data.service, e.data.workers), (True, None, 0)),
    ],
)
def test_override_changes_one_setting(config, override, read, expected):
    assert read(read_experiment(config, [override])) == expected


def test_later_override_wins_and_goes_into_a_named_setting(config):
    experiment = read_experiment(config, ["optimizer=adam", "optimizer.beta_1=0.8", "epochs=5", "epochs=6"])
    assert (experiment.optimizer.arguments, experiment.epochs) == ({"beta_1": 0.8}, 6)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimzer.name=adam", "optimzer: there is no such setting; did you mean 'optimizer'?"),
        ("learning_rate.bas=1", "learning_rate.bas: there is no such setting; did you mean 'base'?"),
        ("optimizer.momentm=1", "optimizer.momentm: sgd has no such setting; did you mean 'momentum'?"),
        ("optimizer.name=adm", "optimizer.name='adm': did you mean 'adam'?"),
        ("optimizer.momentum=high", "optimizer.momentum='high': it is a number, True, False or None."),
        ("task.widht=3", "task.widht: the config states no such argument; did you mean 'width'?"),
        ("task=3", "task=3: it is a name"),
        ("batch_size=many", "batch_size='many': the rows of a global batch are a whole number, 1 or more."),
        ("batch_size=64.0", "batch_size=64.0: "),
        ("batch_size=0", "batch_size=0: "),
        ("epochs=true", "epochs=True: "),
        ("seed=-1", "seed=-1: it is a whole number from 0"),
        ("drop_remainder=1", "drop_remainder=1: it is True or False."),
        ("precision=float16", "precision='float16': "),
        ("writers=jsnl", "writers=['jsnl']: 'jsnl' is none; did you mean 'jsonl'?"),
        ("learning_rate=0.1", "learning_rate=0.1: it holds settings of its own"),
        ("learning_rate.base=nan", "learning_rate.base='nan': "),
        ("learning_rate.base=-1", "learning_rate.base=-1: the rate is a number above 0"),
        ("learning_rate.rule=lineal", "learning_rate.rule='lineal': did you mean 'linear'?"),
        ("learning_rate.warmup=5", "learning_rate.warmup=5: a duration is at least 0 and has a unit"),
        ("learning_rate.warmup=20 epochs", "learning_rate.warmup='20 epochs' with epochs=20: the warm-up ends before"),
        ("learning_rate.schedule=step", "learning_rate.boundaries=[] with schedule='step'"),
        ("learning_rate.boundaries=5 epochs", "learning_rate.boundaries=['5 epochs'] with schedule='constant'"),
        ("optimizer=lion", "Scaling rule 'auto' with the optimizer lion: "),
        ("data.service=grpc://a:1", "data.service='grpc://a:1' with data.workers=0: the order of the batches follows"),
        ("data.service=a:1", "data.service='a:1': the address of a dispatcher is grpc://host:port, or None."),
        ("data.workers=2", "data.service=None with data.workers=2: "),
        ("data.workers=-1", "data.workers=-1: "),
        ("checkpoint.every=5", "checkpoint.every=5: checkpoints are saved every so many steps or epochs, at least one"),
        ("checkpoint.every=auto", 'checkpoint.every="auto" without a mean time between failures: '),
        ("checkpoint.keep_last=0", "checkpoint.keep_last=0: it is a whole number of checkpoints, 1 or more."),
        ("checkpoint.keep_every=-1", "checkpoint.keep_every=-1: it is a whole number of optimizer steps, or 0."),
        ("checkpoint.best_metric=", "checkpoint.best_metric='': it is the name of a metric"),
        ("checkpoint.best_mode=least", "checkpoint.best_mode='least': It is one of min, max."),
        ("checkpoint.max_failed_saves=0", "checkpoint.max_failed_saves=0: it is a whole number of saves, 1 or more."),
        ("checkpoint.grace=0", "checkpoint.grace=0: it is a number of seconds above 0, at most a day."),
        ("checkpoint.watchers=azure", "checkpoint.watchers: 'azure' is no watcher; they are"),
        ("checkpoint.evaluator_timeout=none", "checkpoint.evaluator_timeout=None: it is a number of seconds above 0."),
        ("startup_timeout=0", "startup_timeout=0: it is a number of seconds above 0."),
        ("epochs", "--config.epochs: an override has a name and a value. Write --config.epochs=VALUE."),
        ("epochs.x=1", "--config.epochs.x=1: 'epochs' is a single value."),
    ],
)
def test_wrong_setting_is_refused(config, override, message):
    with pytest.raises(ConfigError) as error:
        read_experiment(config, [override])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file"),
        ("", "it needs a function get_config() that returns a ConfigDict"),
        ("def get_config():\n    return {}", "it needs a function get_config() that returns a ConfigDict"),
        ("def get_config(:", "running it failed with SyntaxError"),
        ("def get_config():\n    return missing", "running it failed with NameError: name 'missing'"),
        (CONFIG.replace("config.epochs", "config.epoch"), "epoch: there is no such setting; did you mean 'epochs'?"),
        (CONFIG.replace("    config.epochs = 20\n", ""), "epochs is not set, and has no default"),
    ],
)
def test_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "config.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_experiment(str(path))
    assert message in str(error.value)


def test_resolved_settings_survive_json(config):
    experiment = read_experiment(
        config, ["learning_rate.schedule=step", "learning_rate.boundaries=('5 epochs', '90 steps')"]
    )
    assert make_experiment(json.loads(json.dumps(to_dict(experiment)))) == experiment


def test_changed_settings_are_listed(config):
    before = to_dict(read_experiment(config))
    now = to_dict(read_experiment(config, ["batch_size=64", "optimizer=adam", "checkpoint.keep_last=2"]))
    assert changed_settings(before, before) == []
    assert changed_settings(before, now) == [
        "batch_size: 128 -> 64",
        "optimizer.name: sgd -> adam",
        "optimizer.momentum: 0.9 -> None",
        "checkpoint.keep_last: 3 -> 2",
    ]


def test_best_checkpoints_are_kept_by_what_is_measured(config):
    best = ["checkpoint.keep_best=2", "checkpoint.best_metric=val_accuracy", "checkpoint.best_mode=max"]
    settings = read_experiment(config, best).checkpoint
    assert settings.retention == Retention(3, 0, 2, "val_accuracy", "max")
    with pytest.raises(ConfigError, match="keep_best=2 by 'val_accuracy' with validation_freq=0: the training never"):
        read_experiment(config, [*best, "validation_freq=0"])


def test_settings_are_frozen(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        read_experiment(config).epochs = 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_settings_are_those_of_keras(name):
    optimizer = {kind.lower(): getattr(keras.optimizers, kind) for kind in dir(keras.optimizers)}[name]()
    known = set(optimizer.get_config()) - {
        *("name", "learning_rate", "loss_scale_factor", "gradient_accumulation_steps"),  # the experiment's own
    }
    assert set(optimizer_arguments(name)) == known
