"""A tf.data service beside the workers: the processes to start, and what the workers find in their environment."""

import dataclasses
import sys
from collections.abc import Mapping

from tfdist.environments.service import DATA_WORKERS, SERVICE
from tfdist.launch.local import LOOPBACK, free_ports


@dataclasses.dataclass(frozen=True)
class LocalService:
    """A dispatcher and its data workers on loopback.

    Attributes:
      commands: the command line of each server, by its name; none without data workers.
      variables: what the trainers' environment says about it.
    """

    commands: Mapping[str, list[str]]
    variables: Mapping[str, str]


def local_service(data_workers: int) -> LocalService:
    """The service with so many data workers; one that is nothing for 0."""
    if not data_workers:
        return LocalService({}, {})
    dispatcher, *workers = (f"{LOOPBACK}:{port}" for port in free_ports(data_workers + 1))
    commands = {"dispatcher": _command("dispatcher", dispatcher, f"--data_workers={','.join(workers)}")}
    for index, address in enumerate(workers):
        flags = f"--dispatcher={dispatcher}", f"--address={address}"
        commands[f"data-worker-{index}"] = _command("worker", address, *flags)
    return LocalService(commands, {SERVICE: f"grpc://{dispatcher}", DATA_WORKERS: str(data_workers)})


def server_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` for a server, which leaves the GPUs to the workers and belongs to no cluster of them."""
    return {**environ, "CUDA_VISIBLE_DEVICES": "", "TF_CONFIG": "{}", "PYTHONUNBUFFERED": "1"}


def _command(role, address, *flags):
    port = address.rpartition(":")[2]
    return [sys.executable, "-m", "tfdist.data_service", f"--role={role}", f"--port={port}", *flags]
