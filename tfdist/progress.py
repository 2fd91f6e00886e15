"""How far a training is, and what the workers may do together between two of its steps."""

import dataclasses
import enum


class Pause(enum.IntEnum):
    """Why all workers stop between the same two steps; of several wishes the smallest is granted first."""

    STOP = 0
    """A callback has decided to end the training."""
    SAVE = -1
    """A checkpoint is due."""
    LEAVE = -2
    """A machine goes away: save, and end the process."""
    GO_BACK = -3
    """The model has come to harm and goes back to an earlier checkpoint; nothing is saved before that."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """A place between two steps of a training.

    Attributes:
        epoch: the epoch, counted from 0.
        step: global batches of this epoch that are through.
        total: global batches of all epochs that are through.
        examples: rows that they had.
        counted: rows that the epoch's metrics count.
        begun: whether the callbacks know that the epoch has begun.
        trained: whether the epoch has no batch left, while its evaluation and its end are still to come.
        stopped: whether a callback has ended the training.
    """

    epoch: int = 0
    step: int = 0
    total: int = 0
    examples: int = 0
    counted: int = 0
    begun: bool = False
    trained: bool = False
    stopped: bool = False

    def __str__(self):
        if self.step == 0:
            return f"after {self.epoch} epoch(s){', ended' if self.stopped else ''}"
        return f"epoch {self.epoch + 1}, {'before its evaluation' if self.trained else f'after step {self.step}'}"
