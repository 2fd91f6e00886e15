"""Starts workers on this machine: `python -m tfdist.launch --workers=2 [--workdir=DIR] -- COMMAND...`.

With --data_workers, a tf.data service runs beside them: `tfdist.train` reads through it, and a script finds it in
TFDIST_DATA_SERVICE.

Every worker runs COMMAND with a TF_CONFIG of its own. The output of the chief, worker 0, appears as it is, that of
the others with their names before each line; with --workdir, all of it goes to DIR/logs too. When one worker fails
the others are ended, and its exit code is the launcher's: 64 wrong flag, config or cluster, 69 a peer was lost, run
again, 75 preempted, run again, 1 the program's own exception; of a signal, 69 if it was killed, 1 if it crashed.

SIGTERM, SIGUSR1 and SIGINT go on to every worker and all that it has started, and those that save leave with 75. A
COMMAND that is a shell script starts its last program by `exec`, or the shell ends before the program has saved.
"""

import argparse
import pathlib
import sys

from tfdist.errors import WRONG_INPUT, TfdistError
from tfdist.launch.run import run_local


def main(argv: list[str] | None = None) -> int:
    """Runs the command line `argv`, by default the process's; returns the exit code."""
    parser = _Parser(prog="python -m tfdist.launch", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=_positive, required=True, help="how many workers to start")
    parser.add_argument(
        "--data_workers", type=_positive, default=0, help="data workers of a tf.data service to start beside them"
    )
    parser.add_argument("--workdir", type=pathlib.Path, help="the run's folder; logs/ in it gets each worker's output")
    parser.add_argument(
        "--grace", type=float, default=30.0, help="seconds to end by itself when another one failed or was preempted"
    )
    parser.add_argument("command", nargs="+", help="the command of every worker, after --")
    arguments = parser.parse_args(argv)
    try:
        return run_local(
            arguments.command,
            arguments.workers,
            data_workers=arguments.data_workers,
            workdir=arguments.workdir,
            grace=arguments.grace,
        )
    except TfdistError as error:
        sys.stderr.write(f"tfdist.launch: {error}\n")
        return error.exit_code


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(WRONG_INPUT, f"{self.format_usage()}{self.prog}: {message}\n")


def _positive(text):
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers; it is a whole number from 1 up")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
