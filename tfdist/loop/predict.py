"""`predict`."""

import keras
import numpy as np
import tensorflow as tf

from tfdist.batching import Share
from tfdist.data import as_data
from tfdist.errors import UnsupportedError
from tfdist.heartbeat import beat, rest
from tfdist.loop import checks, runner
from tfdist.loop.callbacks import callback_list
from tfdist.loop.failures import told_to_users
from tfdist.loop.feed import Feed
from tfdist.step.agree import sum_of_workers
from tfdist.step.parts import Rows
from tfdist.strategy import share_of


def predict(model, x=None, batch_size=None, verbose="auto", steps=None, callbacks=None):
    """The model's outputs for all inputs, in their order, on every worker.

    Call it on every worker alike. The arguments are those of `keras.Model.predict`; `x` and `batch_size` as in
    `tfdist.fit`.

    Returns:
        NumPy arrays [examples, ...], nested as the model's outputs.

    Raises:
        UserError: an argument that cannot work; the message says what to do.
    """
    checks.check_strategy(model)
    strategy = model.distribute_strategy
    share = share_of(strategy)
    feed = Feed(as_data(x, inputs_only=True), batch_size, share, steps=steps, once=True)
    checks.check_prediction(feed)
    checks.check_same_data(strategy, feed)
    container = callback_list(
        callbacks, model, is_chief=share.worker == 0, verbose=verbose, history=False, epochs=1, steps=feed.steps
    )
    global_rows, outputs = _predict_own_rows(feed, runner.predict_function(model, share), container)
    if share.replicas == 1:
        return keras.tree.map_structure(lambda *batches: np.concatenate(batches), *outputs[0])
    positions = np.concatenate([_positions(global_rows, share, replica) for replica in range(len(outputs))])
    own = [_joined(batches, global_rows, share, replica) for replica, batches in enumerate(outputs)]
    merged = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *own)
    return keras.tree.map_structure(lambda leaf: _complete(strategy, share, positions, leaf, sum(global_rows)), merged)


def _predict_own_rows(feed: Feed, function, callbacks):
    """Rows of each global batch, and for each local replica its outputs of each batch."""
    global_rows: list[int] = []
    outputs: list[list] = [[] for _ in range(feed.share.replicas_per_worker)]
    callbacks.on_predict_begin()
    feed.start()
    for step, (rows, ids, batch) in enumerate(_batches(feed)):
        callbacks.on_predict_batch_begin(step)
        global_rows.append(int(rows))
        with told_to_users(feed):
            found = function(Rows(rows, tf.size(ids, tf.int64)), batch)
            results = [keras.tree.map_structure(np.asarray, result) for result in found]
        beat()
        for kept, result in zip(outputs, results):
            kept.append(result)
        callbacks.on_predict_batch_end(step, {"outputs": results[0]})
    callbacks.on_predict_end()
    rest()
    return global_rows, outputs


def _batches(feed: Feed):
    batches, step = feed.epoch(), 0
    while step != feed.steps:
        with told_to_users(feed):
            found = next(batches, None)
        if found is None:
            return
        yield found
        step += 1


def _bounds(rows: int, share: Share, replica: int) -> tuple[int, int]:
    """`(start, stop)` within a global batch of `rows` rows of those of this worker's replica `replica`."""
    start, stop = share.bounds(rows)
    first, last = share.replica_bounds(stop - start, replica)
    return start + first, start + last


def _positions(global_rows: list, share: Share, replica: int):
    """Positions in the input of the rows that a replica predicted, in the order of its predictions."""
    begins = np.cumsum([0, *global_rows[:-1]])
    return np.concatenate(
        [begin + np.arange(*_bounds(rows, share, replica)) for begin, rows in zip(begins, global_rows)]
    )


def _joined(batches: list, global_rows: list, share: Share, replica: int):
    """One array per output: a replica's outputs of all batches, without repeated rows."""
    bounds = [_bounds(rows, share, replica) for rows in global_rows]
    counts = [stop - start for start, stop in bounds]
    return keras.tree.map_structure(
        lambda *leaves: np.concatenate([_real_rows(leaf, count) for leaf, count in zip(leaves, counts)]), *batches
    )


def _real_rows(output, count: int):
    """`output` without the repeated row. Raises UnsupportedError if it has not one row for each input."""
    if output.ndim == 0 or len(output) != max(count, 1):
        raise UnsupportedError(
            f"predict gave an output of shape {output.shape} for {max(count, 1)} rows. On several replicas an output "
            "has a row for each input, so that they can be put in order."
        )
    return output[:count]


def _complete(strategy, share: Share, positions, own: np.ndarray, rows: int) -> np.ndarray:
    """The outputs of all workers at their positions: each fills in its own, the rest is summed in."""
    outputs = np.zeros((rows, *own.shape[1:]), own.dtype)
    outputs[positions] = own
    if share.workers == 1:
        return outputs
    return sum_of_workers(strategy, share, outputs.astype(_summable(own.dtype))).astype(own.dtype)


def _summable(dtype) -> np.dtype:
    """A dtype that all-reduce takes and that holds the values of `dtype`.

    Raises:
        UnsupportedError: `dtype` is not one of numbers or booleans.
    """
    if dtype.kind in "biu":
        return np.dtype("int64")
    if dtype.kind == "f" and dtype.itemsize >= 4:
        return dtype
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return np.dtype("float32")
    raise UnsupportedError(f"predict gave {dtype}: on several workers outputs are numbers or booleans.")
