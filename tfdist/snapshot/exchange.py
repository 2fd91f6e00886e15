"""The chief's checkpoint on all workers, which need not see its folder."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator

from tfdist.batching import Share
from tfdist.checkpoint import MANIFEST, Checkpoints, Found
from tfdist.errors import CheckpointError
from tfdist.step.agree import PIECE_BYTES, share_bytes


@contextlib.contextmanager
def newest_on_all(
    strategy, share: Share, checkpoints: Checkpoints, find: Callable[[], Found | None] | None = None
) -> Iterator[str | None]:
    """A directory of this machine with the files of the newest whole checkpoint; None if there is none.

    The chief looks for it and reads it; the others get it from the chief. Every worker enters alike.

    Args:
        find: returns another one of them; called on the chief alone.

    Raises: CheckpointError, on all workers, for what the chief's `Checkpoints.newest`, or `find`, raises it for.
    """
    with contextlib.ExitStack() as stack:
        directory, facts = _found(checkpoints, find or checkpoints.newest, stack) if share.worker == 0 else (None, {})
        facts = json.loads(share_bytes(strategy, share, json.dumps(facts).encode()))
        if "problem" in facts:
            raise CheckpointError(facts["problem"])
        if "files" not in facts:
            yield None
            return
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfdist-"))
        if share.workers > 1:
            for name, size in facts["files"].items():
                _share_file(strategy, share, os.path.join(directory, name), size)
        yield directory


def _found(checkpoints: Checkpoints, find, stack: contextlib.ExitStack) -> tuple[str | None, dict]:
    """The chief's directory, if there is one, and what the others have to know of it."""
    try:
        found = find()
        if found is None:
            return None, {}
        directory = stack.enter_context(checkpoints.opened(found.step))
    except CheckpointError as error:
        return None, {"problem": str(error)}
    names = [MANIFEST, *found.manifest.files]
    return directory, {"files": {name: os.path.getsize(os.path.join(directory, name)) for name in names}}


def _share_file(strategy, share: Share, path: str, size: int) -> None:
    """Sends the chief's file, piece by piece, or writes what it sends."""
    is_chief = share.worker == 0
    with open(path, "rb" if is_chief else "wb") as file:
        for _ in range(0, size, PIECE_BYTES):
            piece = share_bytes(strategy, share, file.read(PIECE_BYTES) if is_chief else b"")
            if not is_chief:
                file.write(piece)
