"""A server of a tf.data service, for input that outgrows the trainers: a dispatcher, or a data worker.

python -m tfdist.data_service --role=dispatcher --port=5050 --data_workers=host1:5051,host2:5051
python -m tfdist.data_service --role=worker --port=5051 --dispatcher=host0:5050 --address=host1:5051

The dispatcher lists all data workers, since the order of the data follows from their number. A server runs until it is
ended. Exit codes: 64 a wrong flag or a port that is taken, 1 anything else.
"""

import argparse
import os
import sys

from tfdist.cluster.address import MAX_PORT
from tfdist.errors import FINISHED, WRONG_INPUT, ConfigError, TfdistError
from tfdist.launch.local import is_free


def main(argv: list[str] | None = None) -> int:
    """Runs the command line `argv`, by default the process's; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tfdist.data_service", description=__doc__.splitlines()[0])
    parser.add_argument("--role", choices=("dispatcher", "worker"), required=True)
    parser.add_argument("--port", type=int, required=True, help="the port to listen on")
    parser.add_argument("--data_workers", default="", help="dispatcher: host:port of each data worker, with commas")
    parser.add_argument("--dispatcher", default="", help="worker: host:port of the dispatcher")
    parser.add_argument("--address", default="", help="worker: its own host:port, as the dispatcher lists it")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return WRONG_INPUT if stop.code else FINISHED
    try:
        _check(arguments)
        _serve(arguments)
    except TfdistError as error:
        sys.stderr.write(f"tfdist.data_service: {error}\n")
        return error.exit_code
    return FINISHED


def _check(arguments) -> None:
    if not 0 < arguments.port <= MAX_PORT:
        raise ConfigError(f"--port={arguments.port}: ports are in [1, {MAX_PORT}]. Choose a free one.")
    if not is_free(arguments.port):
        raise ConfigError(f"--port={arguments.port}: something listens on it already. Choose a free one.")
    needed = {"dispatcher": ("data_workers",), "worker": ("dispatcher", "address")}[arguments.role]
    for name in needed:
        texts = getattr(arguments, name).split(",")
        for text in texts:
            host, _, port = text.rpartition(":")
            if not host or not port.isdigit():
                raise ConfigError(f"--{name}={text}: a {arguments.role} needs it, as host:port. Correct it.")
        if len(set(texts)) < len(texts):
            raise ConfigError(f"--{name}={','.join(texts)}: one address comes twice. Name each data worker once.")


def _serve(arguments) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    import tensorflow as tf

    service = tf.data.experimental.service
    try:
        if arguments.role == "dispatcher":
            workers = arguments.data_workers.split(",")
            server = service.DispatchServer(service.DispatcherConfig(port=arguments.port, worker_addresses=workers))
        else:
            server = service.WorkerServer(
                service.WorkerConfig(arguments.dispatcher, worker_address=arguments.address, port=arguments.port)
            )
    except tf.errors.OpError as error:
        raise ConfigError(f"--port={arguments.port}: the server does not start: {error.message}.") from error
    server.join()


if __name__ == "__main__":
    sys.exit(main())
