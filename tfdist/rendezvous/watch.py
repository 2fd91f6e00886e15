"""`python watch.py SECONDS [NAME HOST PORT]...`: says which TensorFlow servers are silent, until standard input ends.

A script of its own, from the standard library alone: it has to start in milliseconds and may not fork TensorFlow.
"""

import concurrent.futures
import select
import socket
import sys
import time

_REPORT_SECONDS = 5.0
_ATTEMPT_SECONDS = 1.0


def main(seconds, *triples):
    """Reports every few seconds, and a last time shortly before `seconds` are over."""
    peers = list(zip(triples[::3], triples[1::3], triples[2::3], strict=True))
    start = time.monotonic()
    while not select.select([sys.stdin], [], [], _next_pause(start, seconds))[0]:
        waited = time.monotonic() - start
        who = ", ".join(_silent(peers)) or "every server answers, so some worker has not come to this point"
        if waited >= seconds - _ATTEMPT_SECONDS:
            _say(f"TensorFlow has not started within {seconds:g} s: {who}. Exit code 69: run the whole job again.")
            return
        _say(f"TensorFlow has been starting for {waited:.0f} s of {seconds:g} s: {who}.")


def _next_pause(start, seconds):
    last = start + seconds - _ATTEMPT_SECONDS
    return max(0.0, min(_REPORT_SECONDS, last - time.monotonic()))


def _silent(peers):
    with concurrent.futures.ThreadPoolExecutor(max_workers=64) as pool:
        troubles = pool.map(_trouble, peers)
        return [f"{name} ({host}:{port}: {t})" for (name, host, port), t in zip(peers, troubles, strict=True) if t]


def _trouble(peer):
    """None for a gRPC server that works: it greets whoever connects."""
    _, host, port = peer
    try:
        with socket.create_connection((host, int(port)), timeout=_ATTEMPT_SECONDS) as connection:
            return None if connection.recv(1) else "closes the connection"
    except TimeoutError:
        return "accepts connections, but says nothing"
    except OSError as error:
        return error.strerror or "no answer"


def _say(text):
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
