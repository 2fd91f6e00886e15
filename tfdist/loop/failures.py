"""What TensorFlow raises in the middle of a loop, told in the user's words."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from tfdist.data.python_read import reading_errors
from tfdist.data.service import service_errors
from tfdist.errors import DataError, PeerLostError
from tfdist.loop.feed import Feed


@contextlib.contextmanager
def told_to_users(feed: Feed) -> Iterator[None]:
    """Raises, in the place of TensorFlow's errors: DataError for data that cannot be read or ends too early, and
    PeerLostError for a worker that has gone.
    """
    try:
        with reading_errors(), service_errors():
            yield
    except tf.errors.OutOfRangeError as error:
        raise ended_early(feed) from error
    except tf.errors.InvalidArgumentError as error:
        raise (_of_different_shapes(error) or error) from None
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        if feed.share.workers == 1:
            raise
        raise peer_lost(f"worker {feed.share.worker}", error) from error


def _of_different_shapes(error: tf.errors.OpError) -> DataError | None:
    """The error for examples that make no batch; None if `error` is of another kind."""
    shapes = re.search(r"Incompatible shapes during merge: (\[.*?\]) vs\. (\[.*?\])", error.message)
    if shapes is None:
        return None
    return DataError(
        f"map() returns examples of the shapes {shapes[1]} and {shapes[2]} in one batch, which has one shape. Pad, cut "
        "or resize them in it."
    )


def ended_early(feed: Feed) -> DataError:
    """The error for data that has fewer steps than an epoch was said to have."""
    return DataError(
        f"The data ended before an epoch of {feed.steps} steps did. Give fewer steps_per_epoch, or none to train on "
        "all of it, or a data set that goes on: dataset.repeat()."
    )


def no_batch() -> DataError:
    """The error for an epoch without any batch."""
    return DataError(
        "An epoch began, and the data has no batch for it. A Python iterator, or a generator that goes over one, is "
        "used up after an epoch: train for one epoch, or let the function that is given to from_generator make a new "
        "one each time. Otherwise check what the data set filters out."
    )


def peer_lost(worker: str, error: tf.errors.OpError) -> PeerLostError:
    """The user's error for what TensorFlow raises in `worker` when another one has gone."""
    return PeerLostError(
        f"{worker} lost a peer: {_lost_task(error.message)}. One worker cannot rejoin: run the whole job again."
    )


def _lost_task(message: str) -> str:
    """The task that TensorFlow's message names, or the line that says why."""
    task = re.search(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", message.partition("remote target")[2] or message)
    lines = message.strip().splitlines() or ["TensorFlow does not say why"]
    reason = next((line for line in lines if "aborted by" in line), lines[0])
    reason = re.sub(r"\{\{.*?\}\} ?", "", reason).strip().rstrip(".:")
    return f"{task[1]} {task[2]} ({reason})" if task else reason
