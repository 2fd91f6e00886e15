"""A run from its settings: strategy, data, model, training, evaluation on the held-out data, and what it leaves."""

import contextlib
import json
import logging
import secrets
import time

import keras

from tfdist.batching import elastic_accumulation
from tfdist.callbacks import BackupAndRestore, MetricsWriter
from tfdist.checkpoint import Checkpoints
from tfdist.cluster import Cluster
from tfdist.config import Experiment
from tfdist.config_file import changed_settings, to_dict
from tfdist.data import as_data, served
from tfdist.environments import read_data_service, read_full_workers
from tfdist.errors import ConfigError
from tfdist.loop import evaluate, fit
from tfdist.schedules import Decay, drop_warmup, make_schedule
from tfdist.step.agree import gather_now
from tfdist.strategy import make_strategy, share_of
from tfdist.task import make_task
from tfdist.workdir import Workdir
from tfdist.writers import make_writer

_log = logging.getLogger(__name__)


def run(experiment: Experiment, cluster: Cluster, workdir: Workdir, strategy_kind: str) -> dict:
    """Trains and evaluates; every worker calls it alike, and the chief alone prints and writes.

    What was interrupted goes on from the checkpoints in the workdir, on any number of workers.

    Returns: the loss and the metrics on the held-out data.
    Raises: Preempted once all is saved, after a notice that a machine goes away.
    """
    say = print if cluster.is_chief else _say_nothing
    started = time.monotonic()
    strategy = make_strategy(strategy_kind, cluster, startup_timeout=experiment.startup_timeout)
    _tell_changes(experiment, workdir)
    workdir.write_event("start", workers=cluster.num_workers, replicas=strategy.num_replicas_in_sync)
    task = prepare_task(experiment)
    train_data, held_out = read_data(task.train_data(experiment.seed)), read_data(task.eval_data())
    train_data = _through_service(train_data, experiment, strategy)
    schedule = _schedule(experiment, train_data)
    say(f"{experiment.scaling}, warm-up {experiment.learning_rate.warmup}, then {experiment.learning_rate.schedule}")
    with strategy.scope():
        model = _compiled(task, experiment, schedule)
    accumulate_steps = _accumulate_steps(experiment, cluster)
    if not _train(model, experiment, train_data, held_out, workdir, accumulate_steps):
        say(f"The training in {workdir.path} had ended before: nothing was trained. Another --workdir trains anew.")
    trained = time.monotonic()
    logs = evaluate(model, held_out, batch_size=batch_size_of(experiment, held_out), verbose=0)
    workdir.write_event("evaluation", seconds=time.monotonic() - trained, **logs)
    drop_warmup(model.optimizer, schedule)
    workdir.save_model(model)
    workdir.write_event("stop", seconds=time.monotonic() - started)
    say(_summary(logs, held_out, experiment, workdir, time.monotonic() - started))
    return logs


def prepare_task(experiment: Experiment):
    """The task, after precision and seeds were set: the first thing under a strategy."""
    keras.config.set_dtype_policy(experiment.precision)
    keras.utils.set_random_seed(experiment.seed)
    return make_task(experiment.task.name, experiment.task.arguments)


def read_data(data):
    """What a task gives as data, as `tfdist.data.Data`."""
    return as_data(*data) if isinstance(data, tuple) else as_data(data)


def batch_size_of(experiment: Experiment, data) -> int | None:
    """The batch size that the data takes: a data set that comes in batches takes none. Raises: ConfigError."""
    if data.examples is not None:
        return experiment.batch_size
    if data.rows_per_batch not in (None, experiment.batch_size):
        raise ConfigError(
            f"batch_size={experiment.batch_size}: the task's data set has batches of {data.rows_per_batch} rows, and "
            "the learning rate would follow the wrong one. Batch it with the batch_size of the settings."
        )
    return None


def _say_nothing(line):
    """What the other workers do with the lines that the chief prints."""


def _tell_changes(experiment, workdir):
    """Says in what the settings differ from those that were trained with before in this workdir."""
    before, now = workdir.read_json("config.json"), json.loads(json.dumps(to_dict(experiment)))
    if workdir.writes and before and (changes := changed_settings(before, now)):
        _log.warning("In %s the run before had other settings; now %s.", workdir.path, ", ".join(changes))


def _through_service(data, experiment, strategy):
    """The data by way of the tf.data service that the settings name, or else the environment; itself without one."""
    settings = experiment.data
    named = (settings.service, settings.workers) if settings.service else read_data_service()
    if named is None:
        return data
    service, workers = named
    run = _run_name(strategy)
    _log.info(
        "The %d data workers of %s prepare the batches of the training: the same ones, each example once an epoch and "
        "resumed at any step, as without them. If a data worker is lost, the job has to be run again.",
        workers,
        service,
    )
    return served(data, service=service, workers=workers, run=run, timeout=experiment.startup_timeout)


def _run_name(strategy) -> str:
    """A name that the chief draws, so that the service takes this run for no other."""
    drawn = gather_now(strategy, share_of(strategy), [secrets.randbits(48)])
    return f"tfdist-{int(drawn[0, 0]):012x}"


def _schedule(experiment, data):
    """The learning rate of each optimizer step: here durations become steps."""
    rate, peak = experiment.learning_rate, experiment.scaling.rate
    steps = experiment.steps_per_epoch or data.steps_per_epoch(
        batch_size_of(experiment, data), experiment.drop_remainder
    )
    if steps is None:
        raise ConfigError(
            f"epochs={experiment.epochs}: the task's training data does not say how many steps an epoch has, so that "
            "epochs mean nothing. Set steps_per_epoch, and let the data set go on with `repeat()`."
        )
    return make_schedule(
        peak,
        total_steps=steps * experiment.epochs,
        warmup_steps=rate.warmup.steps(steps),
        start=min(rate.base, peak) if rate.warmup_from is None else rate.warmup_from,
        decay=Decay(
            kind=rate.schedule,
            end_factor=rate.end_factor,
            power=rate.power,
            boundaries=tuple(boundary.steps(steps) for boundary in rate.boundaries),
            step_factor=rate.step_factor,
        ),
    )


def _compiled(task, experiment, schedule):
    model = task.make_model()
    model.compile(_optimizer(experiment.optimizer, schedule), **task.objective())
    return model


def _optimizer(settings, schedule):
    kinds = {name.lower(): getattr(keras.optimizers, name) for name in dir(keras.optimizers)}
    try:
        return kinds[settings.name](learning_rate=schedule, **settings.arguments)
    except ValueError as error:
        raise ConfigError(f"optimizer={settings.name} with {dict(settings.arguments)}: {error}") from error


def _accumulate_steps(experiment, cluster) -> int:
    """Those of the settings, or more where workers of an elastic job are missing."""
    full = read_full_workers()
    if full is None or full <= cluster.num_workers:
        return experiment.accumulate_steps
    steps = elastic_accumulation(experiment.accumulate_steps, cluster.num_workers, full)
    _log.info(
        "%d of %d workers: each takes more rows of the same global batches, in %d micro-batch(es).",
        cluster.num_workers,
        full,
        steps,
    )
    return steps


def _train(model, experiment, data, held_out, workdir, accumulate_steps):
    """Returns whether there was anything left to train."""
    begun: list[int] = []
    with contextlib.closing(make_writer(experiment.writers, workdir.path)) as writer:
        metrics = MetricsWriter(
            writer,
            batch_size=experiment.batch_size,
            examples=data.examples,
            every_steps=experiment.log_every_steps or None,
        )

        def begin(epoch, _):
            if not begun:  # what is refused never gets here, and is not noted
                workdir.write_json("config.json", to_dict(experiment))
            begun.append(epoch)

        fit(
            model,
            data,
            batch_size=batch_size_of(experiment, data),
            epochs=experiment.epochs,
            steps_per_epoch=experiment.steps_per_epoch or None,
            callbacks=[
                keras.callbacks.LambdaCallback(on_epoch_begin=begin),
                metrics,
                *_backup(experiment.checkpoint, workdir, writer),
            ],
            validation_data=held_out if experiment.validation_freq else None,
            validation_freq=experiment.validation_freq or 1,
            accumulate_steps=accumulate_steps,
            drop_remainder=experiment.drop_remainder,
            ledger=workdir.file("ledger") if experiment.data.ledger else None,
        )
    return bool(begun)


def _backup(settings, workdir, writer):
    """The callback that saves the training and puts it back, if it is wanted."""
    if not settings.saves:
        return []
    folder = workdir.file("checkpoints")
    if workdir.writes and not Checkpoints(folder).steps():
        writer.rewind(dict.fromkeys(writer.mark(), 0))  # of a run that was lost before its first checkpoint
    return [
        BackupAndRestore(
            folder,
            settings.every,
            delete_checkpoint=False,
            retention=settings.retention,
            mean_time_between_failures=settings.mean_time_between_failures,
            max_failed_saves=settings.max_failed_saves,
            grace=settings.grace,
            watchers=settings.watchers,
            tell=workdir.write_event,
        )
    ]


def _summary(logs, held_out, experiment, workdir, seconds):
    """The result in words, the accuracy first if there is one, and where the files lie."""
    names = sorted(logs, key=lambda name: ("accuracy" not in name, name == "loss"))
    values = ", ".join(f"{name} {logs[name]:.4f}" for name in names)
    on = f"on {held_out.examples} examples " if held_out.examples else ""
    files = {"jsonl": "metrics.jsonl", "tensorboard": "tensorboard/"}
    left = [
        "model.keras",
        *(["checkpoints/"] if experiment.checkpoint.saves else []),
        *(files[name] for name in experiment.writers if name in files),
        "events.jsonl",
        "config.json",
    ]
    return (
        f"Held-out {values} {on}after {experiment.epochs} epochs ({seconds:.0f} s)\n"
        f"Results in {workdir.path}: {', '.join(left)}"
    )
