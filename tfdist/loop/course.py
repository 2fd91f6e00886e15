"""Where a run of steps is."""

import dataclasses

from tfdist.progress import Progress
from tfdist.step.run import Outcome


@dataclasses.dataclass
class Course:
    """The place of a training or an evaluation, which moves with each call.

    Attributes:
        progress: the steps that are through.
        logs: the metrics of the epoch so far, as Keras has them; between two epochs, all of the last one.
    """

    progress: Progress = dataclasses.field(default_factory=Progress)
    logs: dict = dataclasses.field(default_factory=dict)

    def take_in(self, outcome: Outcome) -> None:
        """Moves on by the steps of a call."""
        at, steps, rows = self.progress, int(outcome.steps), int(outcome.rows)
        self.move(step=at.step + steps, total=at.total + steps, examples=at.examples + rows, counted=at.counted + rows)
        self.logs = dict(sorted(_plain(outcome.logs)))

    def move(self, **fields) -> None:
        """Replaces fields of the progress."""
        self.progress = dataclasses.replace(self.progress, **fields)


def _plain(logs: dict):
    """`(name, value)` of all logs, those within a metric's dict included; scalars as floats."""
    for name, value in logs.items():
        if isinstance(value, dict):
            yield from _plain(value)
        else:
            yield name, float(value) if value.ndim == 0 else value
