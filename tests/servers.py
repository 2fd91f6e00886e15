"""Servers of tf.data services in a process of their own, which is killed in the end: stopping them takes a minute.

python servers.py '[[1, 1], [3, 2]]': for each pair a dispatcher that lists so many data workers, and so many that are
started. Prints their addresses; then stops data worker i of all of them for each line i that it reads.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

from tfdist.launch.local import free_ports

ROOT = pathlib.Path(__file__).parents[1]


@contextlib.contextmanager
def services_of(*listed_and_started) -> Iterator:
    """The addresses of services, the function that stops a data worker of each, and the one that halts all servers."""
    command = [sys.executable, __file__, json.dumps(listed_and_started)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environ, **pipes) as process:
        try:
            services = json.loads(process.stdout.readline())

            def stop(worker):
                process.stdin.write(f"{worker}\n")
                process.stdin.flush()
                assert process.stdout.readline() == "stopped\n"

            yield services, stop, lambda: process.send_signal(signal.SIGSTOP)
        finally:
            process.kill()


def _start(listed, started):
    import tensorflow as tf

    service = tf.data.experimental.service
    ports = free_ports(1 + max(listed, started))
    addresses = [f"127.0.0.1:{port}" for port in ports[1:]]
    names = addresses if listed else None
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=ports[0], worker_addresses=names))
    workers = [
        service.WorkerServer(service.WorkerConfig(f"127.0.0.1:{ports[0]}", address, port=port))
        for address, port in list(zip(addresses, ports[1:]))[:started]
    ]
    return dispatcher, workers


def main(pairs):
    running = [_start(*pair) for pair in pairs]
    print(json.dumps([dispatcher.target for dispatcher, _ in running]), flush=True)
    for line in sys.stdin:
        for _, workers in running:
            workers[int(line)]._stop()
        print("stopped", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
