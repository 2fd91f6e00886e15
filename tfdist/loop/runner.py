"""A model's traced steps, made once and kept with the model."""

import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat import seeds, trainer
from tfdist.compat.optimizers import learning_rate_of
from tfdist.loop.feed import Feed
from tfdist.step import custom, evaluate, train
from tfdist.step.run import Runner, make_runner


def build(model, batch_spec) -> None:
    """Builds what is not built, in the model's strategy's scope.

    A model without a `call`, such as one that holds the parts of a GAN, is left to its `train_step`.
    """
    if trainer.overrides(model, "train_step") and not trainer.has_call(model):
        return
    with model.distribute_strategy.scope():
        trainer.build(model, batch_spec)


def build_optimizers(model, steps: Runner) -> None:
    """Builds optimizers of the model's own, which a `train_step` builds as it is traced: a checkpoint fills them."""
    if not all(optimizer.built for optimizer in trainer.optimizers_of(model)) and steps.has_logs:
        steps.trace_one()


def train_runner(model, feed: Feed, accumulate_steps: int, *, records: bool = False) -> Runner:
    """The runner of the train step. `records`: whether its outcomes have `seen`."""
    share = feed.share
    may_be_empty = feed.smallest_batch < share.replicas * accumulate_steps

    def make(generator):
        if trainer.overrides(model, "train_step"):
            return custom.make_custom_replica_step(model, share, generator)
        return train.make_replica_step(
            model, share, generator, accumulate_steps=accumulate_steps, may_be_empty=may_be_empty
        )

    key = ("train", accumulate_steps, may_be_empty)
    return _cached(model, feed, key, make, "train_step", records)


def evaluate_runner(model, feed: Feed) -> Runner:
    """The runner of the evaluate step."""
    share = feed.share
    may_be_empty = feed.smallest_batch < share.replicas

    def make(generator):
        if trainer.overrides(model, "test_step"):
            return evaluate.make_custom_evaluate_step(model, share, generator)
        return evaluate.make_evaluate_step(model, share, generator, may_be_empty=may_be_empty)

    return _cached(model, feed, ("evaluate", may_be_empty), make, "test_step", records=False)


def _cached(model, feed: Feed, key, make, stock_step: str, records: bool) -> Runner:
    cache = trainer.cache_of(model)
    key = (*key, records, feed.share, str(feed.batch_spec))
    rate = None if model.optimizer is None else learning_rate_of(model.optimizer)
    # A schedule put on the optimizer since the step was traced asks for a new trace.
    if key not in cache or cache[key][0] is not rate:
        with model.distribute_strategy.scope():
            generator = seeds.global_generator()
        has_logs = trainer.overrides(model, stock_step)
        step = make(generator)
        runner = make_runner(model, feed.share, step, feed.batch_spec, has_logs=has_logs, records=records)
        cache[key] = rate, runner
    return cache[key][1]


def predict_function(model, share: Share):
    """`(rows, worker_batch) -> a list with each local replica's outputs`."""
    cache = trainer.cache_of(model) if model.compiled else {}
    if ("predict", share) not in cache:
        strategy = model.distribute_strategy
        with strategy.scope():
            generator = seeds.global_generator()
        step = evaluate.make_predict_step(model, share, generator)

        def function(rows, batch):
            outputs = strategy.run(step, args=(rows, batch))
            return [
                tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[r], outputs)  # noqa: B023
                for r in range(share.replicas_per_worker)
            ]

        cache["predict", share] = (
            function if model.run_eagerly else tf.function(function, autograph=False, reduce_retracing=True)
        )
    return cache["predict", share]
