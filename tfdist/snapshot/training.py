"""All that a checkpoint holds of a training, taken and put back at one step of all workers."""

import dataclasses
import logging
from typing import NamedTuple

from tfdist.batching import Share
from tfdist.errors import CheckpointError
from tfdist.progress import Progress
from tfdist.snapshot.callback_state import put_callbacks, take_callbacks
from tfdist.snapshot.files import Files, read_files
from tfdist.snapshot.variables import digest, put, take
from tfdist.snapshot.workers import put_workers, take_workers
from tfdist.step.agree import gather_now

_log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """What a checkpoint holds; it does not change any more, so that it can be written while the training goes on.

    Attributes:
        progress: where the training was.
        metrics: the epoch's metrics then, floats by name.
        files: what is written.
    """

    progress: Progress
    metrics: dict[str, float]
    files: Files


def take_training(model, share: Share, progress: Progress, logs: dict, callbacks: list, data: dict) -> Snapshot | None:
    """What a checkpoint holds of a training, as it is now: on the chief, and None on the other workers.

    Every worker calls it at the same step.

    Args:
        logs: the metrics of the epoch so far.
        callbacks: those of this worker.
        data: what the place inside an epoch depends on, by name: numbers and texts.
    """
    states, problem = _states(callbacks) if share.worker == 0 else ({}, "")
    workers = take_workers(model, share, problem)
    if share.worker != 0:
        return None
    tree = {
        "progress": dataclasses.asdict(progress),
        "logs": logs,
        "data": data,
        "workers": workers,
        "callbacks": states,
    }
    metrics = {name: float(value) for name, value in logs.items() if isinstance(value, float)}
    return Snapshot(progress, metrics, Files.of(take(model), tree))


def _states(callbacks: list) -> tuple[dict, str]:
    """The callbacks' states, and what is wrong with them, which all workers have to know."""
    try:
        return take_callbacks(callbacks), ""
    except CheckpointError as error:
        return {}, str(error)


def put_training(model, share: Share, directory, callbacks: list, data: dict) -> tuple[Progress, dict]:
    """Puts back what the checkpoint in `directory` holds, in part if `callbacks` are others. Every worker calls it.

    Returns: where the training was, and the metrics of its epoch then.
    Raises: CheckpointError if it does not fit the model or, inside of an epoch, the data; or if the workers do not have
        the same values afterwards.
    """
    with read_files(directory) as (stored, tree):
        progress = Progress(**tree["progress"])
        _check_data(progress, tree["data"], data)
        put(model, stored)
        # Within an evaluation the metrics are those of the evaluation, which begins anew.
        put_workers(model, share, tree["workers"], with_metrics=progress.step > 0 and not progress.trained)
        put_callbacks(callbacks, tree["callbacks"], tell=share.worker == 0)
    _check_agreement(model, share)
    return progress, tree["logs"]


def put_values(model, share: Share, directory, epoch: int) -> tuple[Progress, dict | None]:
    """Puts back the model and the random states alone, for a training that goes on where it is, in `epoch`.

    Every worker calls it.

    Returns: where the training was then, and the metrics of the epoch if they are put back too; None if they are to
        begin anew, since the checkpoint has none of this epoch.
    Raises: as `put_training`; the data does not matter.
    """
    with read_files(directory) as (stored, tree):
        then = Progress(**tree["progress"])
        is_inside = then.epoch == epoch and then.step > 0
        put(model, stored)
        put_workers(model, share, tree["workers"], with_metrics=is_inside)
    _check_agreement(model, share)
    return then, tree["logs"] if is_inside else None


def _check_data(progress: Progress, then: dict, now: dict) -> None:
    """Inside of an epoch, a place means the same only if the batches are the same."""
    different = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    if not different:
        return
    listed = ", ".join(f"{name} was {then.get(name)} and is {now.get(name)}" for name in different)
    if progress.step:
        raise CheckpointError(
            f"The checkpoint was saved at {progress}, and the data is not the same: {listed}. Go on with what it was "
            "saved with, until the epoch is over, or name another folder to start anew."
        )
    _log.warning(
        "The training goes on with other data than before: %s. A learning-rate schedule goes by optimizer steps, and "
        "is where so many steps bring it.",
        listed,
    )


def _check_agreement(model, share: Share) -> None:
    """Raises CheckpointError unless all replicas of all workers hold the same bits."""
    if share.replicas == 1:
        return
    digests = gather_now(model.distribute_strategy, share, digest(model))
    if len(set(digests.ravel().tolist())) > 1:
        raise CheckpointError(
            f"After the restore the replicas of the workers do not hold the same values; their checksums are "
            f"{digests.tolist()}. Run the job again; if it stays so, see that all machines have the same versions."
        )
