"""The settings of an experiment: frozen dataclasses that check themselves, without TensorFlow.

`tfdist.config_file` reads them from a Python file and from `--config.a.b=value`. A wrong setting is refused with
its value, the rule and the remedy.
"""

import contextlib
import dataclasses
import re
from collections.abc import Mapping

from tfdist.checkpoint.interval import read_interval, read_seconds
from tfdist.checkpoint.retention import Retention
from tfdist.durations import Duration
from tfdist.errors import ConfigError
from tfdist.fields import check_fields, choice, nearest, setting
from tfdist.preemption.watchers import read_watcher
from tfdist.scaling import KINDS, RULES, Scaling, scale

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
WRITERS = ("jsonl", "tensorboard", "console")

# What each of Keras's optimizers takes beside the learning rate; a test compares it with Keras.
OPTIMIZERS = {
    "sgd": "momentum nesterov",
    "adam": "beta_1 beta_2 epsilon amsgrad",
    "adamw": "beta_1 beta_2 epsilon amsgrad",
    "nadam": "beta_1 beta_2 epsilon",
    "adamax": "beta_1 beta_2 epsilon",
    "lamb": "beta_1 beta_2 epsilon",
    "lion": "beta_1 beta_2",
    "rmsprop": "rho momentum epsilon centered",
    "adagrad": "initial_accumulator_value epsilon",
    "adadelta": "rho epsilon",
    "adafactor": "beta_2_decay epsilon_1 epsilon_2 clip_threshold relative_step",
}
_ANY_OPTIMIZER = "weight_decay clipnorm clipvalue global_clipnorm use_ema ema_momentum ema_overwrite_frequency"


def optimizer_arguments(name: str) -> list[str]:
    """What the settings of an optimizer may hold beside its name. Raises: ConfigError for an unknown optimizer."""
    if name not in OPTIMIZERS:
        raise ConfigError(f"optimizer.name={name!r}: {nearest(name, OPTIMIZERS)}")
    return f"{OPTIMIZERS[name]} {_ANY_OPTIMIZER}".split()


@dataclasses.dataclass(frozen=True)
class Named:
    """Something that is made by its name, a task or an optimizer; `arguments` are handed to its maker."""

    name: str
    arguments: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRate:
    """The rate, how it follows the batch, its warm-up and its decay.

    Attributes:
        base: The rate that fits batches of `base_batch_size` rows.
        rule: `linear`, `sqrt`, `none`, or `auto`: linear for SGD, sqrt for the Adam family.
        warmup: Gradual warm-up, from `warmup_from`, or from the base rate where that is None.
        schedule: What follows: `constant`; `cosine` and `polynomial` (of `power`), down to `end_factor` times the
            peak at the end of the training; `step`, times `step_factor` at each of `boundaries`.
    """

    base: float = setting("the rate is a number above 0, for example 0.1.", lambda v: 0 < v < float("inf"))
    base_batch_size: int = setting("the batch that the base rate fits is a whole number, 1 or more.", lambda v: v > 0)
    rule: str = choice(RULES, "auto")
    warmup: Duration = Duration(0, "steps")
    warmup_from: float | None = setting(
        "it is a rate, 0 or more, or None for the base.", lambda v: v is None or v >= 0, None
    )
    schedule: str = choice(KINDS, "constant")
    end_factor: float = setting("it is a number from 0 to 1, times the peak rate.", lambda v: 0 <= v <= 1, 0.0)
    power: float = setting("it is a number above 0; 1 is a straight line.", lambda v: 0 < v < float("inf"), 1.0)
    boundaries: tuple[Duration, ...] = ()
    step_factor: float = setting("it is a number above 0 and at most 1.", lambda v: 0 < v <= 1, 0.1)

    def __post_init__(self):
        check_fields(self, "learning_rate.")
        if (self.schedule == "step") != bool(self.boundaries):
            raise ConfigError(
                f"learning_rate.boundaries={[str(b) for b in self.boundaries]} with schedule={self.schedule!r}: the "
                'step schedule has boundaries and no other has. Write boundaries=("30 epochs", "60 epochs").'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How the training data is read.

    Attributes:
        service: `grpc://host:port`, the dispatcher of a tf.data service whose data workers prepare the batches; None
            for what the environment says (TFDIST_DATA_SERVICE), or the trainers themselves.
        workers: The data workers of that dispatcher; 0 without a service.
        ledger: Record which examples each worker trains on, in the workdir, for `python -m tfdist.ledger`.
    """

    service: str | None = setting(
        "the address of a dispatcher is grpc://host:port, or None.",
        lambda v: v is None or re.fullmatch(r"grpc://[^/]+:\d+", v) is not None,
        None,
    )
    workers: int = setting("it is the number of data workers of the service, or 0.", lambda v: v >= 0, 0)
    ledger: bool = setting("it is True or False.", default=False)

    def __post_init__(self):
        check_fields(self, "data.")
        if (self.service is not None) != (self.workers > 0):
            raise ConfigError(
                f"data.service={self.service!r} with data.workers={self.workers}: the order of the batches follows "
                "from the number of data workers. Set both, or neither."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """When the training is saved in `workdir/checkpoints`, from where the same command goes on; what stays of it.

    Attributes:
        every: "2 epochs", "500 steps", "10 minutes"; "auto" for what costs least time in all, which follows from
            `mean_time_between_failures` of the whole job ("6 hours") and what a save costs; or "never".
        keep_last: How many of the newest stay. Beside these stay the first one in each `keep_every` steps, and the
            `keep_best` with the best `best_metric`, as the training's logs name it; `best_mode`: whether "min" or "max"
            is best. An evaluator keeps the best weights by the same metric, on the held-out data.
        max_failed_saves: Saves in a row that may fail, on a full disk say, before the training ends.
        grace: Seconds from the notice of a preemption until the process has to be gone.
        watchers: What to look at for a notice, beside signals: "gce", "aws", "file:PATH".
        evaluator_timeout: Seconds without a sign of life of the training, after which an evaluator gives up.
    """

    every: str = "1 epochs"
    mean_time_between_failures: str | None = None
    keep_last: int = setting("it is a whole number of checkpoints, 1 or more.", lambda v: v > 0, 3)
    keep_every: int = setting("it is a whole number of optimizer steps, or 0.", lambda v: v >= 0, 0)
    keep_best: int = setting("it is a whole number of checkpoints, or 0.", lambda v: v >= 0, 0)
    best_metric: str = setting('it is the name of a metric, for example "val_loss".', bool, "val_loss")
    best_mode: str = choice(("min", "max"), "min")
    max_failed_saves: int = setting("it is a whole number of saves, 1 or more.", lambda v: v > 0, 3)
    grace: float = setting("it is a number of seconds above 0, at most a day.", lambda v: 0 < v <= 86400, 30.0)
    watchers: tuple[str, ...] = ()
    evaluator_timeout: float = setting("it is a number of seconds above 0.", lambda v: 0 < v < float("inf"), 21600.0)

    def __post_init__(self):
        check_fields(self, "checkpoint.")
        if self.mean_time_between_failures is not None:
            with _named("checkpoint.mean_time_between_failures="):
                read_seconds(self.mean_time_between_failures)
        if self.saves:
            with _named("checkpoint.every="):
                read_interval(self.every, self.mean_time_between_failures)
        for watcher in self.watchers:
            with _named("checkpoint.watchers: "):
                read_watcher(watcher)

    @property
    def saves(self) -> bool:
        """Whether there are checkpoints at all."""
        return self.every != "never"

    @property
    def retention(self) -> Retention:
        """Which ones stay."""
        return Retention(self.keep_last, self.keep_every, self.keep_best, self.best_metric, self.best_mode)


@contextlib.contextmanager
def _named(setting_name):
    """Puts the name of the setting before the message of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{setting_name}{error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """All settings of a run.

    Attributes:
        task: Import path of a module with `make_task(**arguments)`, see `tfdist.task`.
        batch_size: Rows of a global batch, of all replicas of all workers together.
        steps_per_epoch: Optimizer steps after which an epoch ends; 0: when the data does. A `tf.data.Dataset` that does
            not know its length needs it, and `repeat()`.
        accumulate_steps: Micro-batches per replica and optimizer step.
        validation_freq: Epochs between evaluations on the held-out data; 0: at the end alone.
        writers: Where metrics go, once an epoch and, unless 0, every `log_every_steps` optimizer steps.
        startup_timeout: Seconds to wait for the peers.
    """

    task: Named
    batch_size: int = setting("the rows of a global batch are a whole number, 1 or more.", lambda v: v > 0)
    epochs: int = setting("the epochs are a whole number, 1 or more.", lambda v: v > 0)
    learning_rate: LearningRate
    optimizer: Named = Named("sgd")
    steps_per_epoch: int = setting("it is a whole number of optimizer steps, or 0.", lambda v: v >= 0, 0)
    accumulate_steps: int = setting("it is a whole number of micro-batches, 1 or more.", lambda v: v > 0, 1)
    precision: str = choice(PRECISIONS, "float32")
    seed: int = setting("it is a whole number from 0 to 2^31 - 1.", lambda v: 0 <= v < 2**31, 0)
    drop_remainder: bool = setting("it is True or False.", default=False)
    validation_freq: int = setting("it is a whole number of epochs, or 0.", lambda v: v >= 0, 1)
    writers: tuple[str, ...] = ("jsonl", "tensorboard")
    log_every_steps: int = setting("it is a whole number of optimizer steps, or 0.", lambda v: v >= 0, 0)
    data: DataSettings = DataSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    startup_timeout: float = setting("it is a number of seconds above 0.", lambda v: 0 < v < float("inf"), 300.0)

    def __post_init__(self):
        check_fields(self)
        self._check_optimizer()
        for name in self.writers:
            if name not in WRITERS:
                raise ConfigError(f"writers={list(self.writers)}: {name!r} is none; {nearest(name, WRITERS)}")
        if self.learning_rate.warmup.unit == "epochs" and self.learning_rate.warmup.amount >= self.epochs:
            raise ConfigError(
                f"learning_rate.warmup='{self.learning_rate.warmup}' with epochs={self.epochs}: the warm-up ends "
                "before the training does. Shorten it or train for more epochs."
            )
        self._check_best()
        _ = self.scaling  # refuses a rule that the optimizer does not have

    def _check_optimizer(self):
        known = optimizer_arguments(self.optimizer.name)
        for name, value in self.optimizer.arguments.items():
            if name not in known:
                raise ConfigError(
                    f"optimizer.{name}: {self.optimizer.name} has no such setting; {nearest(name, known)}"
                )
            if not isinstance(value, (bool, int, float, type(None))):
                raise ConfigError(f"optimizer.{name}={value!r}: it is a number, True, False or None.")

    def _check_best(self):
        kept, metric = self.checkpoint.keep_best, self.checkpoint.best_metric
        if kept and metric.startswith("val_") and not self.validation_freq:
            raise ConfigError(
                f"checkpoint.keep_best={kept} by {metric!r} with validation_freq=0: the training never measures it. "
                "Set validation_freq, or another best_metric."
            )

    @property
    def scaling(self) -> Scaling:
        """The learning rate for the global batch."""
        rate = self.learning_rate
        return scale(rate.base, rate.base_batch_size, self.batch_size, rate.rule, self.optimizer.name)
