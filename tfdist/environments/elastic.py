"""How many workers a job has when none of its hosts is lost. The launcher writes this variable."""

import os
from collections.abc import Mapping

from tfdist.environments.variables import whole_number

FULL_WORKERS = "TFDIST_FULL_WORKERS"


def read_full_workers(environ: Mapping[str, str] = os.environ) -> int | None:
    """The number of workers of the job at its full size; None if it has one size. Raises: ClusterError."""
    return whole_number(environ, FULL_WORKERS, lowest=1)
