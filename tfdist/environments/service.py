"""Which tf.data service prepares the batches. The launcher writes these variables, or whoever starts the trainers."""

import os
import re
from collections.abc import Mapping

from tfdist.environments.variables import whole_number
from tfdist.errors import ClusterError

SERVICE = "TFDIST_DATA_SERVICE"
DATA_WORKERS = "TFDIST_DATA_WORKERS"


def read_data_service(environ: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """The dispatcher's address, `grpc://host:port`, and its number of data workers; None if there is no service.

    Raises: ClusterError if one is missing or malformed.
    """
    service = environ.get(SERVICE, "").strip()
    workers = whole_number(environ, DATA_WORKERS, lowest=1)
    if not service and workers is None:
        return None
    if workers is None or not re.fullmatch(r"grpc://[^/]+:\d+", service):
        raise ClusterError(
            f"{SERVICE}={service!r} with {DATA_WORKERS}={workers}: the first is grpc://host:port, and the second the "
            "number of data workers there. Set both, or neither."
        )
    return service, workers
