"""A folder of checkpoints: each there whole or not at all, and verified before it is read."""

import contextlib
import dataclasses
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfdist.checkpoint.manifest import MANIFEST, DamageError, Manifest, NewerFormatError, read_versions
from tfdist.checkpoint.place import Place
from tfdist.checkpoint.retention import Retention
from tfdist.checkpoint.storage import make_storage
from tfdist.checkpoint.verify import check_contents, files_in, open_in, read_manifest, reason
from tfdist.errors import CheckpointError

_log = logging.getLogger(__name__)
_RETENTION = Retention()


@dataclasses.dataclass(frozen=True)
class Found:
    """A whole checkpoint: `path` is for messages; its files are read by `Checkpoints.opened(step)`."""

    step: int
    path: str
    manifest: Manifest


class Checkpoints:
    """The checkpoints in the folder `path`, which one process at a time writes to and any number read.

    Args:
        path: a local path, or a URL that `tf.io.gfile` can write to; made at the first commit. What goes to or comes
            from a URL lies in a temporary directory meanwhile (`TMPDIR`).
        retention: which ones stay.
        clock: seconds since 1970.
    """

    def __init__(self, path, retention: Retention = _RETENTION, clock: Callable[[], float] = time.time):
        self.path = os.fspath(path)
        self._storage = make_storage(self.path)
        self._retention, self._clock = retention, clock
        self._verified: dict[Place, Manifest] = {}
        self._damaged: set[Place] = set()

    def commit(
        self,
        step: int,
        write: Callable[[str], None],
        *,
        progress: Mapping[str, Any],
        metrics: Mapping[str, float],
        arrays: Mapping[str, Mapping[str, Any]],
    ) -> str:
        """Writes the checkpoint of `step` and, once it is safe, removes those that the retention does not keep.

        One of the same step is replaced, and those of later steps go: the training has taken another course.

        Args:
            write: puts files, no folders, into the local directory that it is given.
            progress, metrics, arrays: for the manifest; see `Manifest`.

        Returns: the path of the checkpoint.
        Raises: OSError, and what `write` raises. Then nothing is left of this checkpoint, and the others stand.
        """
        self._storage.clear()
        with self._storage.partial() as directory:
            with self._storage.filling(directory):
                write(directory)
                facts = dict(progress), dict(metrics), dict(arrays), files_in(directory)
            manifest = Manifest(step, self._clock(), read_versions(), *facts)
            with open(os.path.join(directory, MANIFEST), "wb") as file:
                file.write(manifest.encode())
            place = self._storage.publish(directory, step)
        self._thin_out(place)
        return self._storage.path(place)

    def newest(self, before: int | None = None) -> Found | None:
        """The newest whole checkpoint, of a step smaller than `before` if that is given; None if there is none at all.

        Reads all its files. Logs which damaged ones it passes over.

        Raises: CheckpointError if there are some and none is whole, if one that a later tfdist has written comes
            first, or if the folder cannot be read: to start anew is for the user to decide.
        """
        problems: list[str] = []
        places = self._places(before)
        for place in places:
            if found := self._find(place, problems):
                return found
        if places != self._places(before):  # another process has removed what was to be read, for it has newer ones
            return self.newest(before)
        if problems:
            raise CheckpointError(
                f"{self.path}: none of its checkpoints is whole ({'; '.join(problems)}). Restore one from a copy, or "
                "remove the folder to start anew."
            )
        return None

    def steps(self) -> list[int]:
        """Steps of what is committed, the newest first; no file is read. Raises: CheckpointError as `newest`."""
        return list(dict.fromkeys(place.step for place in self._places()))

    @contextlib.contextmanager
    def opened(self, step: int) -> Iterator[str]:
        """Gives a local directory with the verified files of a checkpoint: a temporary copy where `path` is a URL.

        Another process may remove it meanwhile: files that are open then can still be read, others raise OSError.

        Raises: CheckpointError if there is none of that step, or it is damaged.
        """
        place = next((place for place in self._places() if place.step == step), None)
        if place is None:
            raise CheckpointError(f"{self.path}: no checkpoint of step {step}. Take one of {self.steps()}.")
        with contextlib.ExitStack() as stack:
            try:
                directory = self._enter(stack, place)
            except (DamageError, OSError) as error:
                path, others = self._storage.path(place), [other for other in self.steps() if other != step]
                raise CheckpointError(f"{path}: {error}. Take another one, of {others}.") from error
            yield directory

    def remove(self) -> None:
        """Removes all checkpoints, and the folder if nothing else is in it. Raises: OSError."""
        for place in self._storage.places():
            self._remove(place)
        self._storage.clear()
        self._storage.remove_folder()

    def _places(self, before=None):
        """What is committed, the newest first."""
        try:
            places = self._storage.places()
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: its checkpoints cannot be listed: {reason(error)}. Name a folder that can be read, or "
                "mount it again."
            ) from error
        return [place for place in reversed(places) if before is None or place.step < before]

    def _find(self, place, problems):
        path = self._storage.path(place)
        try:
            manifest = read_manifest(self._storage, place)
            check_contents(functools.partial(self._storage.open, place), manifest)
        except DamageError as damage:
            _log.warning("Checkpoint %s is passed over: %s.", path, damage)
            problems.append(f"{place.name}: {damage}")
            self._damaged.add(place)
            return None
        self._verified[place] = manifest
        return Found(place.step, path, manifest)

    def _enter(self, stack, place):
        """Enters the files of a checkpoint; what `newest` has just read on this machine is not read again."""
        manifest = read_manifest(self._storage, place)
        directory = stack.enter_context(self._storage.as_local(place, manifest.files))
        if self._storage.copies or self._verified.get(place) != manifest:
            check_contents(functools.partial(open_in, directory), manifest)
        return directory

    def _thin_out(self, committed: Place):
        """Removes what has become superfluous by a commit, which stands whatever becomes of this."""
        try:
            standing = self._standing()
            later = [place for place in standing if place.step > committed.step]
            if later:
                names = ", ".join(place.name for place in later)
                _log.warning("%s: %s of another course of the training removed.", self.path, names)
            for place in [*later, *self._surplus({p: m for p, m in standing.items() if p not in later})]:
                self._remove(place)
        except OSError as error:
            _log.warning("%s: old checkpoints could not be removed: %s.", self.path, error)

    def _standing(self):
        """The metrics of what is committed, in order; None for what is damaged; without what a later tfdist wrote."""
        standing: dict[Place, dict[str, float] | None] = {}
        for place in self._storage.places():
            with contextlib.suppress(NewerFormatError):
                standing[place] = self._metrics(place)
        return standing

    def _metrics(self, place):
        try:
            return None if place in self._damaged else read_manifest(self._storage, place).metrics
        except DamageError:
            return None

    def _surplus(self, standing):
        last = {place.step: place for place in standing}
        gone = self._retention.surplus({step: standing[place] for step, place in last.items()})
        return [place for place in standing if place.step in gone or place != last[place.step]]

    def _remove(self, place):
        self._verified.pop(place, None)
        self._damaged.discard(place)
        self._storage.remove(place)
