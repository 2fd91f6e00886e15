"""Trains an experiment on whatever cluster the environment describes.

python -m tfdist.train --config=configs/digits.py --workdir=runs/digits --strategy=auto [--config.a.b=value ...]

Flags, settings and cluster are checked before TensorFlow starts. What was interrupted goes on when it is started again
with the same workdir. An `evaluator` task evaluates the checkpoints of the others, see `tfdist.evaluator`.

Exit codes: 0 finished; 64 a wrong flag, config or cluster; 69 a peer is missing or was lost, run the whole job again;
75 preempted, run the whole job again; 1 the program's own exception.
"""

import logging
import os
import sys

from absl import app, flags

from tfdist.cluster.kinds import check_kind
from tfdist.config_file import read_experiment
from tfdist.environments import read_cluster
from tfdist.errors import ConfigError, Preempted, TfdistError, UserError
from tfdist.preemption import leaving_when_told
from tfdist.task import find_task
from tfdist.workdir import Workdir

_CONFIG = flags.DEFINE_string(
    "config", None, "A Python file whose get_config() returns the settings; --config.a.b=value changes one of them."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "The folder for what the run leaves; the chief alone writes there.")
_STRATEGY = flags.DEFINE_enum(
    "strategy", "auto", ["auto", "single", "mirrored", "multiworker", "ps"], "How to distribute; auto asks the cluster."
)
_overrides: list[str] = []


def main(argv: list[str] | None = None) -> None:
    """Runs the command line `argv` (by default the process's) and exits."""
    try:
        app.run(_run, argv, flags_parser=_parse_flags)
    except TfdistError as error:
        print(f"tfdist: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    except Preempted as preempted:
        print(f"tfdist: {preempted}", file=sys.stderr, flush=True)
        raise


def _parse_flags(argv):
    """Takes the overrides out, and has absl read the rest."""
    _overrides[:] = [text.removeprefix("--config.") for text in argv if text.startswith("--config.")]
    try:
        rest = flags.FLAGS([text for text in argv if not text.startswith("--config.")])
    except flags.Error as error:
        raise ConfigError(f"{error} Give --config, --workdir and --strategy.") from error
    if len(rest) > 1:
        raise ConfigError(f"{rest[1]!r} is no flag. Give --config, --workdir, --strategy and --config.NAME=VALUE.")
    return rest


def _run(argv):
    del argv
    for flag in (_CONFIG, _WORKDIR):
        if not flag.value:
            raise ConfigError(f"--{flag.name} is not set. Give --{flag.name}=PATH.")
    experiment = read_experiment(_CONFIG.value, _overrides)
    find_task(experiment.task.name)
    cluster = read_cluster()
    check_kind(_STRATEGY.value, cluster)
    workdir = Workdir(_WORKDIR.value, writes=cluster.is_chief)
    _show_our_lines()
    with leaving_when_told():
        if cluster.is_evaluator:
            _run_evaluator(experiment, cluster, workdir)
        else:
            _run_experiment(experiment, cluster, workdir)


def _show_our_lines():
    """Shows our own lines, and TensorFlow's from warnings on; unless flags or environment say otherwise."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if not flags.FLAGS["verbosity"].present:
        logging.getLogger("tfdist").setLevel(logging.INFO)
        logging.getLogger("tensorflow").setLevel(logging.WARNING)


def _run_evaluator(experiment, cluster, workdir):
    if not experiment.checkpoint.saves:
        raise ConfigError(
            "checkpoint.every='never' with an evaluator: it evaluates checkpoints, and there are none. Set "
            "checkpoint.every, or start no evaluator."
        )
    own = Workdir(workdir.file("evaluator"), writes=True)

    from tfdist.evaluator import run

    run(experiment, cluster, workdir, own)


def _run_experiment(experiment, cluster, workdir):
    from tensorflow.errors import AbortedError, UnavailableError

    from tfdist.experiment import run
    from tfdist.loop.failures import peer_lost

    try:
        run(experiment, cluster, workdir, _STRATEGY.value)
    except UserError as error:
        workdir.write_event("refused", error=str(error))
        raise
    except (AbortedError, UnavailableError) as error:
        if cluster.num_workers == 1:
            raise
        raise peer_lost(cluster.name, error) from error


if __name__ == "__main__":
    main()
