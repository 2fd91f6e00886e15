"""Says for each epoch how often each example was trained on: `python -m tfdist.ledger WORKDIR`.

Exit codes: 0 each exactly once, 1 not so, 64 there is no ledger that can be read.
"""

import argparse
import sys

from tfdist.errors import FINISHED, WRONG_INPUT, TfdistError
from tfdist.ledger.report import read_report


def main(argv: list[str] | None = None) -> int:
    """Runs the command line `argv`, by default the process's; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tfdist.ledger", description=__doc__.splitlines()[0])
    parser.add_argument("workdir", help="the run's folder, or the one with its ledgers")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return WRONG_INPUT if stop.code else FINISHED
    try:
        report = read_report(arguments.workdir)
    except TfdistError as error:
        sys.stderr.write(f"tfdist.ledger: {error}\n")
        return error.exit_code
    print(report)
    return FINISHED if report.exactly_once else 1


if __name__ == "__main__":
    sys.exit(main())
