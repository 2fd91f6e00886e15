"""What the scheduler says about the job: environment variables -> `Cluster`. The one place that reads them."""

import os
from collections.abc import Mapping

from tfdist.cluster import Cluster


def read_cluster(environ: Mapping[str, str] = os.environ) -> Cluster:
    """The cluster that the environment describes, `Cluster.local()` if it describes none.

    Raises: ClusterError if what it says is malformed or contradicts itself.
    """
    text = environ.get("TF_CONFIG", "")
    return Cluster.from_tf_config(text) if text.strip() else Cluster.local()
