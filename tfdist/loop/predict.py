"""`predict`."""

import keras
import numpy as np
import tensorflow as tf

from tfdist.batching import Share, part_start
from tfdist.data import as_data
from tfdist.loop import checks, runner
from tfdist.loop.callbacks import callback_list
from tfdist.loop.feed import Feed
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
    feed = Feed(as_data(x, inputs_only=True), batch_size, share, steps=steps)
    container = callback_list(
        callbacks, model, is_chief=share.worker == 0, verbose=verbose, history=False, epochs=1, steps=feed.steps
    )
    global_rows, outputs = _predict_own_rows(feed, runner.predict_function(model, share), container)
    if share.replicas == 1:
        return keras.tree.map_structure(lambda *batches: np.concatenate(batches), *outputs[0])
    order = np.concatenate([_positions(global_rows, share.replicas, replica) for replica in range(share.replicas)])
    inverse = np.argsort(order, kind="stable")
    own = [_joined(batches, global_rows, share, replica) for replica, batches in enumerate(outputs)]
    return keras.tree.map_structure(lambda *leaves: _gather(strategy, share, leaves)[inverse], *own)


def _predict_own_rows(feed: Feed, function, callbacks):
    """Rows of each global batch, and for each local replica its outputs of each batch."""
    global_rows: list[int] = []
    outputs: list[list] = [[] for _ in range(feed.share.replicas_per_worker)]
    callbacks.on_predict_begin()
    feed.start()
    for step, (rows, batch) in enumerate(feed.epoch()):
        callbacks.on_predict_batch_begin(step)
        global_rows.append(int(rows))
        results = [keras.tree.map_structure(np.asarray, result) for result in function(rows, batch)]
        for kept, result in zip(outputs, results):
            kept.append(result)
        callbacks.on_predict_batch_end(step, {"outputs": results[0]})
        if step + 1 == feed.steps:
            break
    callbacks.on_predict_end()
    return global_rows, outputs


def _positions(global_rows: list, replicas: int, replica: int):
    """Positions in the input of the rows that a replica predicted, in the order of its predictions."""
    starts = np.cumsum([0, *global_rows[:-1]])
    return np.concatenate(
        [
            np.arange(start + part_start(rows, replicas, replica), start + part_start(rows, replicas, replica + 1))
            for start, rows in zip(starts, global_rows)
        ]
    )


def _joined(batches: list, global_rows: list, share: Share, replica: int):
    """One array per output: a local replica's outputs of all batches, without repeated rows."""
    index = share.worker * share.replicas_per_worker + replica
    counts = [
        part_start(rows, share.replicas, index + 1) - part_start(rows, share.replicas, index) for rows in global_rows
    ]
    return keras.tree.map_structure(
        lambda *leaves: np.concatenate([leaf[:count] for leaf, count in zip(leaves, counts)]), *batches
    )


def _gather(strategy, share: Share, leaves) -> np.ndarray:
    """The local replicas' arrays and those of all other replicas, one behind the other by replica."""
    first = share.worker * share.replicas_per_worker
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(leaves[int(context.replica_id_in_sync_group) - first])
    )

    @tf.function(autograph=False)
    def gather(values):
        return strategy.run(lambda value: tf.distribute.get_replica_context().all_gather(value, axis=0), args=(values,))

    return strategy.experimental_local_results(gather(values))[0].numpy()
