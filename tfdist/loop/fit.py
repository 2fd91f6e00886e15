"""`fit`."""

import contextlib
import logging

import keras

from tfdist.data import as_data
from tfdist.data.service import Served
from tfdist.data.split import split_validation
from tfdist.environments import read_data_service
from tfdist.errors import UserError
from tfdist.heartbeat import rest
from tfdist.loop import checks, runner
from tfdist.loop.callbacks import callback_list
from tfdist.loop.drive import Driver
from tfdist.loop.evaluate import Evaluation
from tfdist.loop.feed import Feed
from tfdist.loop.pace import Pace
from tfdist.loop.record import recorder
from tfdist.loop.training import Training
from tfdist.strategy import share_of

_log = logging.getLogger(__name__)


def fit(
    model,
    x=None,
    y=None,
    batch_size=None,
    epochs=1,
    verbose="auto",
    callbacks=None,
    validation_split=0.0,
    validation_data=None,
    shuffle=True,
    class_weight=None,
    sample_weight=None,
    initial_epoch=0,
    steps_per_epoch=None,
    validation_steps=None,
    validation_batch_size=None,
    validation_freq=1,
    *,
    accumulate_steps=1,
    drop_remainder=False,
    steps_per_execution="auto",
    seed=0,
    ledger=None,
) -> keras.callbacks.History:
    """Trains a compiled model under the strategy in whose scope it was made. Call it on every worker alike.

    The arguments are those of `keras.Model.fit`, with these differences and additions.

    Args:
        x: a `tfdist.data.Data`; a tuple `(x, y)` or `(x, y, sample_weight)` of arrays; arrays of inputs, with `y`
            beside them; or a `tf.data.Dataset` of global batches.
        batch_size: rows of a global batch, over all replicas of all workers; 32 by default.
        shuffle: whether arrays are shuffled, in an order drawn from `seed` and the epoch. Data and data sets bring
            their own order.
        accumulate_steps: micro-batches into which each replica cuts its rows, run one after the other, to save memory.
            The result is that of the whole batch.
        drop_remainder: leave out the last global batch of an epoch if it is partial.
        steps_per_execution: steps per traced call; "auto" runs up to the next point where a callback looks.
        ledger: a folder in which each worker records the examples that it trains on, for `python -m tfdist.ledger`.

    Returns:
        The history, with the same values on every worker.

    Raises:
        UserError: an argument that cannot work; the message says what to do.
    """
    (x, y, sample_weight), validation_data = split_validation((x, y, sample_weight), validation_split, validation_data)
    data = as_data(x, y, sample_weight, shuffle=shuffle, seed=seed)
    checks.check_weights(data, class_weight)
    checks.check_counts(epochs=epochs, steps_per_epoch=steps_per_epoch, validation_steps=validation_steps)
    share = share_of(model.distribute_strategy)
    feed = Feed(
        data if ledger is None else data.with_ids(),
        batch_size,
        share,
        steps=steps_per_epoch,
        drop_remainder=drop_remainder,
        class_weight=class_weight,
    )
    checks.check_fit(model, share, callbacks, accumulate_steps, feed.smallest_batch)
    checks.check_same_data(
        model.distribute_strategy, feed, epochs=epochs, initial_epoch=initial_epoch, accumulate_steps=accumulate_steps,
        class_weight=class_weight, validation=(validation_data is not None, validation_freq),
    )  # fmt: skip
    runner.build(model, feed.batch_spec)
    checks.check_scope(model)  # again: some metrics have their variables only now
    validation = None
    if validation_data is not None:
        held_out = as_data(tuple(validation_data) if isinstance(validation_data, list) else validation_data)
        size = None if held_out.examples is None else validation_batch_size or batch_size
        validation = Evaluation(model, held_out, size, validation_steps)
    _report(feed, accumulate_steps)
    _tell_of_unused_service(data)
    container = callback_list(
        callbacks, model, is_chief=share.worker == 0, verbose=verbose, history=True, epochs=epochs, steps=feed.steps
    )
    pace = Pace(_steps_per_call(steps_per_execution))
    model.stop_training = False
    with contextlib.ExitStack() as stack:
        training = Training(model, feed, container, initial_epoch, stack)
        training.begin()
        # Made here, since callbacks have set the optimizer's schedule by now.
        steps = runner.train_runner(model, feed, accumulate_steps, records=ledger is not None)
        runner.build_optimizers(model, steps)
        training.restore()
        record = stack.enter_context(recorder(ledger, model.distribute_strategy, feed, training.progress))
        training.start(Driver(model, steps, feed, pace, "train", training.course, training.pauses), record)
        logs = _run_epochs(training, validation, container, epochs, validation_freq)
        if isinstance(model.optimizer, keras.optimizers.Optimizer) and epochs > initial_epoch:
            model.optimizer.finalize_variable_values(model.trainable_weights)
        container.on_train_end(logs)
    rest()
    return model.history


def _run_epochs(training: Training, validation, callbacks, epochs: int, validation_freq) -> dict | None:
    """Returns the logs of the last epoch; None if there is none to run."""
    logs = None
    while (epoch := training.progress.epoch) < epochs and not training.progress.stopped:
        logs = training.run_epoch()
        if validation is not None and _is_due(epoch, validation_freq):
            held_out = validation.run(callbacks, training.pauses)
            logs |= {f"val_{name}": value for name, value in held_out.items()}
        callbacks.on_epoch_end(epoch, logs)
        training.end_epoch(logs)
    return logs


def _report(feed: Feed, accumulate_steps: int) -> None:
    """Says once how a global batch is cut, and how many examples are left out."""
    share, parts = feed.share, feed.share.replicas * accumulate_steps
    _log.info(
        "Global batch %s over %d worker(s) with %d replica(s) each, in %d micro-batch(es): up to %s rows at a time. "
        "%s step(s) per epoch.",
        feed.batch_size or "as in the data set",
        share.workers,
        share.replicas_per_worker,
        accumulate_steps,
        -(-feed.batch_size // parts) if feed.batch_size else "?",
        feed.steps or "an unknown number of",
    )
    if feed.plan is not None and feed.plan.drop_remainder:
        dropped, examples = feed.plan.dropped, feed.plan.examples
        _log.warning("drop_remainder leaves out %d of %d examples in each epoch.", dropped, examples)


def _tell_of_unused_service(data) -> None:
    service = read_data_service()
    if service is not None and not isinstance(data, Served):
        _log.warning(
            "The environment names the tf.data service %s, which this training does not use. Hand over "
            "tfdist.data.served(data, service=..., workers=..., run=...), or start no data workers.",
            service[0],
        )


def _steps_per_call(steps_per_execution) -> int | None:
    if steps_per_execution == "auto":
        return None
    if not isinstance(steps_per_execution, int) or steps_per_execution < 1:
        raise UserError(f"steps_per_execution={steps_per_execution!r}: give 'auto' or an integer of 1 or above.")
    return steps_per_execution


def _is_due(epoch: int, frequency) -> bool:
    """Keras's rule: every `frequency` epochs, or at the epochs that it lists, counted from 1."""
    return (epoch + 1) % frequency == 0 if isinstance(frequency, int) else epoch + 1 in frequency
