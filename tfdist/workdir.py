"""The folder that a run leaves: each file is there whole or not at all, and the chief alone writes."""

import contextlib
import json
import os
import time

from tfdist.errors import ConfigError


class Workdir:
    """Writes into the folder `path`, which is made if need be; does nothing where `writes` is false.

    Raises: ConfigError if the folder cannot be made or written to.
    """

    def __init__(self, path: str, writes: bool, clock=time.time):
        self.path, self._writes, self._clock = path, writes, clock
        if writes:
            self._make()

    def _make(self):
        try:
            os.makedirs(self.path, exist_ok=True)
            writable = os.access(self.path, os.W_OK | os.X_OK)
        except OSError as error:
            raise ConfigError(
                f"--workdir={self.path}: {error.strerror}. Give a folder that can be written to."
            ) from error
        if not writable:
            raise ConfigError(f"--workdir={self.path}: it cannot be written to. Give another folder.")

    def write_json(self, name: str, value) -> None:
        """Writes the file `name` with `value` as JSON, for people to read."""
        if self._writes:
            with self.whole(name) as partial, open(partial, "w", encoding="utf-8") as file:
                json.dump(value, file, indent=2)
                file.write("\n")

    def write_event(self, event: str, **values) -> None:
        """Appends to `events.jsonl` what happened: `event`, `time` (seconds since 1970) and `values`."""
        if self._writes:
            with open_to_append(os.path.join(self.path, "events.jsonl")) as file:
                file.write(json.dumps({"event": event, "time": self._clock(), **values}) + "\n")

    def save_model(self, model) -> None:
        """Saves `model.keras`, which stock Keras loads."""
        if self._writes:
            with self.whole("model.keras") as partial:
                model.save(partial)

    @contextlib.contextmanager
    def whole(self, name: str):
        """Gives a path to write to, and moves the file to its name once it is complete and on disk."""
        stem, extension = os.path.splitext(name)
        partial = os.path.join(self.path, f".{stem}.partial{extension}")
        try:
            yield partial
            with open(partial, "rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, os.path.join(self.path, name))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(partial)


def open_to_append(path):
    """Opens a file of lines. Where a killed run left it in the middle of a line, a new line begins."""
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    file.seek(0)
    if file.read()[-1:] not in ("", "\n"):
        file.write("\n")
    return file
