"""What `fit` refuses before it starts, with the remedy."""

import hashlib

import keras
import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat import trainer
from tfdist.compat.optimizers import inner_optimizer
from tfdist.environments import read_cluster
from tfdist.errors import BatchError, DataError, UnsupportedError, UserError
from tfdist.loop.feed import Feed
from tfdist.step.agree import gather_now
from tfdist.step.update import MIRRORING


def check_compiled(model, action: str) -> None:
    """Raises UserError if the model was not compiled."""
    if not model.compiled:
        raise UserError(f"{action} of a model that is not compiled. Call model.compile(...) in the strategy's scope.")


def check_strategy(model) -> None:
    """Raises UserError if the model cannot be trained where it was made."""
    strategy = model.distribute_strategy
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise UnsupportedError("fit on parameter servers is not there yet. Use a synchronous strategy.")
    cluster = read_cluster()
    multiworker = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if cluster.num_workers > 1 and not cluster.is_evaluator and not multiworker:
        raise UserError(
            f"The environment describes {cluster.num_workers} workers, but the model was made outside of a "
            "multi-worker strategy: each worker would train a model of its own. Make and compile it in "
            "`with tfdist.make_strategy('multiworker').scope():`."
        )


def check_scope(model) -> None:
    """Raises UserError if a part of the compiled model was made outside of the model's strategy's scope.

    Such variables are not mirrored: every replica would update the same one, and no error would say so.
    """
    extended = model.distribute_strategy.extended
    if not isinstance(model.distribute_strategy, MIRRORING):
        return
    parts = [("model", model.variables), ("metrics", model.metrics_variables)]
    parts += [(f"optimizer {optimizer.name!r}", optimizer.variables) for optimizer in trainer.optimizers_of(model)]
    for part, variables in parts:
        foreign = [variable.path for variable in variables if not extended.variable_created_in_scope(variable.value)]
        if foreign:
            raise UserError(
                f"The {part} has variables made outside of the strategy's scope: {', '.join(foreign[:3])}. Make model, "
                "optimizer and metrics, and call compile, inside `with strategy.scope():`."
            )


def check_counts(**counts) -> None:
    """Raises UserError for a count of epochs or steps, by the name of its argument, that is not one."""
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise UserError(f"{name}={count!r}: it counts, so it is an integer of 1 or above.")


def check_weights(data, class_weight) -> None:
    """Raises DataError if there are class weights and sample weights, as Keras does."""
    element = data.element_spec
    if class_weight and isinstance(element, tuple) and len(element) == 3:
        raise DataError(
            "class_weight and sample_weight together: an example has one weight. Multiply them yourself, and give "
            "sample_weight alone."
        )


def check_fit(model, share: Share, callbacks, accumulate_steps: int, smallest_batch: int) -> None:
    """Raises UserError for what cannot be offered.

    `smallest_batch`: rows of the smallest global batch.
    """
    check_compiled(model, "fit")
    check_strategy(model)
    check_scope(model)
    if isinstance(accumulate_steps, bool) or not isinstance(accumulate_steps, int) or accumulate_steps < 1:
        raise BatchError(f"accumulate_steps={accumulate_steps!r}: it counts micro-batches, an integer of 1 or above.")
    if getattr(inner_optimizer(model.optimizer), "gradient_accumulation_steps", None):
        raise UnsupportedError(
            "The optimizer has gradient_accumulation_steps, which counts calls and not global batches. Leave it out "
            "and give fit(accumulate_steps=...), with a batch_size that is that many times larger."
        )
    _check_custom_step(model, share, accumulate_steps, smallest_batch)
    _check_callbacks(callbacks, share)


def check_evaluation(model, share: Share, smallest_batch: int) -> None:
    """Raises BatchError if a `test_step` of the model's own would count an example twice."""
    if trainer.overrides(model, "test_step") and smallest_batch < share.replicas:
        raise BatchError(
            f"A global batch may have {smallest_batch} row(s) for {share.replicas} replicas, and a test_step of the "
            "model's own cannot skip a replica without rows. Use another batch size."
        )


def check_prediction(feed: Feed) -> None:
    """Raises DataError for data whose outputs could not be put in the order of the input."""
    if feed.data.shares_rows and feed.share.workers > 1:
        raise DataError(
            "predict of data of which each worker has rows of its own: there is no order of the input to return the "
            "outputs in. Hand over a data set that is the same on every worker."
        )


def check_same_data(strategy, feed: Feed, **arguments) -> None:
    """Raises DataError unless all workers were given the same data and `arguments`. All of them must call it."""
    share = feed.share
    if share.workers == 1:
        return
    identity = feed.identity() | arguments
    digest = int.from_bytes(hashlib.blake2b(repr(sorted(identity.items())).encode(), digest_size=7).digest(), "big")
    digests = gather_now(strategy, share, [digest])[:, 0].tolist()
    if len(set(digests)) > 1:
        same = [worker for worker, other in enumerate(digests) if other == digest]
        raise DataError(
            f"The data or the arguments differ from worker to worker. This one has {identity}, and so do the workers "
            f"{same} of {share.workers}. Give all workers the same data and arguments; each reads its own part."
        )


def _check_custom_step(model, share: Share, accumulate_steps: int, smallest_batch: int) -> None:
    if not trainer.overrides(model, "train_step"):
        return
    if accumulate_steps > 1:
        raise UnsupportedError(
            f"accumulate_steps={accumulate_steps} with a model that overrides train_step, which applies its gradients "
            "itself. Use accumulate_steps=1, or override compute_loss instead of train_step."
        )
    if smallest_batch < share.replicas:
        raise BatchError(
            f"A global batch may have {smallest_batch} row(s) for {share.replicas} replicas, and a train_step of the "
            "model's own cannot skip a replica without rows. Use drop_remainder=True (for a data set, in its batch()) "
            "or another batch size."
        )


def _check_callbacks(callbacks, share: Share) -> None:
    for callback in keras.tree.flatten(callbacks or []):
        if share.workers > 1 and isinstance(callback, keras.callbacks.BackupAndRestore):
            raise UnsupportedError(
                "keras.callbacks.BackupAndRestore on several workers: all of them would write and read one file. Take "
                "tfdist.callbacks.BackupAndRestore in its place, which has its arguments."
            )
