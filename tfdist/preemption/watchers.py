"""Watchers by their names in a config, and the plainest of them."""

import dataclasses
import os

from tfdist.errors import ConfigError
from tfdist.preemption.listener import Watcher
from tfdist.preemption.metadata import AwsMetadata, GceMetadata

_CLOUDS = {"aws": AwsMetadata, "gce": GceMetadata}


@dataclasses.dataclass(frozen=True)
class FileAppears:
    """Sees a file, by which whoever runs the job tells it to stop. A `Watcher`.

    A file that is there from the start counts too: remove it before the job is run again.
    """

    path: str

    def look(self) -> str | None:
        """See `Watcher`."""
        return f"The file {self.path} is there (remove it before the next run)" if os.path.exists(self.path) else None


def read_watcher(text: str) -> Watcher:
    """The watcher that a setting names: "file:PATH", "gce" or "aws".

    Raises: ConfigError for anything else.
    """
    if isinstance(text, str):
        kind, _, path = text.partition(":")
        if kind == "file" and path:
            return FileAppears(path)
        if text in _CLOUDS:
            return _CLOUDS[text]()
    raise ConfigError(
        f'{text!r} is no watcher; they are "file:PATH", which sees a file appear, "gce" and "aws", which ask the '
        "metadata server of such a machine. Give one of these."
    )
