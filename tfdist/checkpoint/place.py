"""The folder of a checkpoint: `step-00001200`, and where one of that step stood already, `step-00001200.1`.

A checkpoint is never overwritten: the next one of its step stands beside it before it goes, so that a kill in between
leaves one of them.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_NAME = re.compile(r"step-(\d{8,})(?:\.([1-9]\d*))?", re.ASCII)


class Place(NamedTuple):
    """Step and generation of a checkpoint; places are ordered as their checkpoints came."""

    step: int
    generation: int = 0

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"step-{self.step:08d}" + (f".{self.generation}" if self.generation else "")


def read_places(names: Iterable[str]) -> list[Place]:
    """The places among the names of files and folders, in order; other names are left out."""
    matches = filter(None, map(_NAME.fullmatch, names))
    places = ((match[0], Place(int(match[1]), int(match[2] or 0))) for match in matches)
    return sorted(place for name, place in places if name == place.name)


def next_place(step: int, names: Iterable[str]) -> Place:
    """A place for a checkpoint of `step` that is not among `names`."""
    taken = [place.generation for place in read_places(names) if place.step == step]
    return Place(step, 1 + max(taken, default=-1))
