"""Metric output as text: a file with a JSON object a line, and the console."""

import json
import math
import os
import sys
import time

from tfdist.workdir import open_to_append
from tfdist.writers.writer import Writer


class JsonlWriter(Writer):
    """Appends one JSON object a line: `step`, `time` (seconds since 1970) and the scalars; null for NaN and infinity.

    What it takes back it cuts off the file, at once.

    Args:
        path: The file; its folder is made if need be.
        clock: Gives the time of a line.
    """

    def __init__(self, path, clock=time.time):
        self.path, self._clock, self._file = path, clock, None

    def write_scalars(self, step, scalars):
        values = {name: _finite(value) for name, value in scalars.items()}
        self._opened().write(json.dumps({"step": int(step), "time": self._clock(), **values}) + "\n")

    def flush(self):
        if self._file is not None:
            self._file.flush()

    def mark(self):
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        return {"bytes": _size(self.path)}

    def rewind(self, mark):
        self.close()
        end = mark.get("bytes")
        if end is not None and end < _size(self.path):
            os.truncate(self.path, end)

    def close(self):
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self):
        if self._file is None:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            self._file = open_to_append(self.path)
        return self._file


class ConsoleWriter(Writer):
    """Prints one line a write, to standard output or to `stream`."""

    def __init__(self, stream=None):
        self._stream = stream

    def write_scalars(self, step, scalars):
        values = "  ".join(f"{name} {value:.4g}" for name, value in scalars.items())
        print(f"step {step}  {values}", file=self._stream or sys.stdout)

    def flush(self):
        (self._stream or sys.stdout).flush()


def _size(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _finite(value):
    if isinstance(value, int):
        return value
    value = float(value)
    return value if math.isfinite(value) else None
