"""A model's traced steps, made once and kept with the model."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat import seeds, trainer
from tfdist.step import custom, evaluate, run, train


class Runner(NamedTuple):
    """The calls of `step.run.make_runner`; `has_logs`: the model's own step returns logs, so that it runs one by one."""

    many: Callable
    one: Callable
    agree: Callable
    has_logs: bool


def build(model, batch_spec) -> None:
    """Builds what is not built, in the model's strategy's scope."""
    with model.distribute_strategy.scope():
        if not trainer.overrides(model, "train_step") or not model.built:
            trainer.build(model, batch_spec)


def train_runner(model, share: Share, accumulate_steps: int, smallest_batch: int) -> Runner:
    """The runner of the train step."""
    may_be_empty = smallest_batch < share.replicas * accumulate_steps

    def make(generator):
        if trainer.overrides(model, "train_step"):
            return custom.make_custom_replica_step(model, share, generator)
        return train.make_replica_step(
            model, share, generator, accumulate_steps=accumulate_steps, may_be_empty=may_be_empty
        )

    return _cached(model, ("train", share, accumulate_steps, may_be_empty), make, "train_step")


def evaluate_runner(model, share: Share, smallest_batch: int) -> Runner:
    """The runner of the evaluate step."""
    may_be_empty = smallest_batch < share.replicas

    def make(generator):
        if trainer.overrides(model, "test_step"):
            return evaluate.make_custom_evaluate_step(model, share, generator)
        return evaluate.make_evaluate_step(model, share, generator, may_be_empty=may_be_empty)

    return _cached(model, ("evaluate", share, may_be_empty), make, "test_step")


def _cached(model, key, make, stock_step: str) -> Runner:
    cache = trainer.cache_of(model)
    if key not in cache:
        strategy = model.distribute_strategy
        with strategy.scope():
            generator = seeds.global_generator()
        has_logs = trainer.overrides(model, stock_step)
        cache[key] = Runner(*run.make_runner(model, strategy, make(generator), has_logs=has_logs), has_logs)
    return cache[key]


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

        cache["predict", share] = function if model.run_eagerly else tf.function(function, autograph=False, reduce_retracing=True)
    return cache["predict", share]
