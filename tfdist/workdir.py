"""The folder that a run leaves: each file is there whole or not at all, and the chief alone writes."""

import contextlib
import json
import logging
import os
import time

from tfdist.errors import ConfigError

_log = logging.getLogger(__name__)


class Workdir:
    """Writes into the folder `path`, which is made if need be; does nothing where `writes` is false.

    Raises: ConfigError if the folder cannot be made or written to.
    """

    def __init__(self, path: str, writes: bool, clock=time.time):
        self.path, self.writes, self._clock = path, writes, clock
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
        if self.writes:
            with self.whole(name) as partial, open(partial, "w", encoding="utf-8") as file:
                json.dump(value, file, indent=2)
                file.write("\n")

    def write_event(self, event: str, **values) -> None:
        """Appends to `events.jsonl` what happened: `event`, `time` (seconds since 1970) and `values`.

        Where that is not possible, on a full disk say, the event is logged: no training ends for it.
        """
        line = json.dumps({"event": event, "time": self._clock(), **values})
        if self.writes:
            try:
                with open_to_append(self.file("events.jsonl")) as file:
                    file.write(line + "\n")
            except OSError as error:
                _log.error("%s: %s. It does not get this line: %s", self.file("events.jsonl"), error.strerror, line)

    def read_json(self, name: str):
        """The dict in the file `name`; empty if there is none, or none that can be read, which is logged."""
        try:
            with open(self.file(name), encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read: %s.", self.file(name), error)
            return {}
        return found if isinstance(found, dict) else {}

    def has_ended(self) -> bool:
        """Whether the training came to its end, as far as is known here; a run that was refused changes nothing."""
        ended = before = False
        for line in read_lines(self.file("events.jsonl")):
            if line["event"] == "start":
                before, ended = ended, False
            elif line["event"] == "stop":
                ended = before = True
            elif line["event"] == "refused":
                ended = before
        return ended

    def sizes(self) -> list[int]:
        """Of the files that grow while a run does, in bytes; a file that is not there has none."""
        files = [self.file(name) for name in ("events.jsonl", "metrics.jsonl")]
        return [os.path.getsize(file) if os.path.exists(file) else 0 for file in files]

    def file(self, name: str) -> str:
        """The path of a file, or folder, in this one."""
        return os.path.join(self.path, name)

    def save_model(self, model) -> None:
        """Saves `model.keras`, which stock Keras loads."""
        if self.writes:
            with self.whole("model.keras") as partial:
                model.save(partial)

    @contextlib.contextmanager
    def whole(self, name: str):
        """Gives a path to write to, and moves the file to its name once it is complete and on disk."""
        stem, _, extension = name.partition(".")
        partial = self.file(f".{stem}.partial.{extension}")
        try:
            yield partial
            with open(partial, "rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, self.file(name))
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


def read_lines(path) -> list[dict]:
    """The JSON objects in a file of lines, without lines that a kill has torn; none if there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    return [line for line in map(_object, text.splitlines()) if line is not None]


def _object(line):
    try:
        return json.loads(line)
    except ValueError:
        return None
