"""A SageMaker training job: one worker per host.

Sources: SageMaker Training Toolkit, "ENVIRONMENT_VARIABLES.md" (SM_HOSTS, SM_CURRENT_HOST,
SM_RESOURCE_CONFIG, SM_INPUT_CONFIG_DIR); Amazon SageMaker Developer Guide, "How Amazon SageMaker Provides
Training Information", Distributed Training Configuration (resourceconfig.json, TRAINING_JOB_NAME).
"""

import json
import pathlib
from collections.abc import Mapping

from tfdist.cluster import Cluster
from tfdist.environments.variables import base_port, worker_cluster
from tfdist.errors import ClusterError

_LEAVE = "Leave what SageMaker sets as it is."


def read(environ: Mapping[str, str]) -> Cluster | None:
    """The hosts of the training job in SageMaker's order, None outside of one. Raises: ClusterError."""
    config = _resource_config(environ)
    if config is None:
        return None
    hosts, own = config.get("hosts"), config.get("current_host")
    if not isinstance(hosts, list) or own not in hosts:
        raise ClusterError(
            f"SageMaker lists the hosts {hosts!r}, and this one is {own!r}: the list has every host, this one among "
            f"them. {_LEAVE}"
        )
    return worker_cluster(hosts, [base_port(environ)] * len(hosts), hosts.index(own))


def hosts_of(environ: Mapping[str, str]) -> list[str]:
    """The hosts of SM_HOSTS, none outside of SageMaker. Raises: ClusterError."""
    hosts = _parse(environ["SM_HOSTS"], "SM_HOSTS") if environ.get("SM_HOSTS") else []
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise ClusterError(f"SM_HOSTS is {environ['SM_HOSTS']!r}, and should be a list of names. {_LEAVE}")
    return hosts


def _resource_config(environ):
    if hosts_of(environ):
        return {"hosts": hosts_of(environ), "current_host": environ.get("SM_CURRENT_HOST")}
    text = environ.get("SM_RESOURCE_CONFIG") or _config_file(environ)
    config = _parse(text, "SageMaker's resource configuration") if text else None
    if config is not None and not isinstance(config, dict):
        raise ClusterError(f"SageMaker's resource configuration is {text!r}, and should be a JSON object. {_LEAVE}")
    return config


def _config_file(environ):
    if not environ.get("TRAINING_JOB_NAME"):
        return None
    folder = environ.get("SM_INPUT_CONFIG_DIR", "/opt/ml/input/config")
    path = pathlib.Path(folder, "resourceconfig.json")
    return path.read_text() if path.is_file() else None


def _parse(text, what):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ClusterError(f"{what} is {text!r}, which is not JSON: {error}. {_LEAVE}") from None
