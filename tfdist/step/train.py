"""The traced train step: forward and backward over the micro-batches, one all-reduce, one optimizer step."""

import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat import seeds, trainer
from tfdist.step.forward import forward, keep_if_empty, loss_totals
from tfdist.step.parts import Part, Rows, replica_batch
from tfdist.step.reduce import replica_share, sum_over_replicas
from tfdist.step.state import State
from tfdist.step.update import update


def make_replica_step(model, share: Share, seed_generator, *, accumulate_steps: int, may_be_empty: bool):
    """The step of one replica: `(rows, worker_batch) -> None`, to be run by `strategy.run`.

    Args:
        model: built and compiled, with a built optimizer, made in the strategy's scope.
        share: this worker's share of a global batch.
        seed_generator: the generator behind `seed=None`.
        accumulate_steps: micro-batches per optimizer step, run one after the other.
        may_be_empty: whether some global batch has fewer rows than replicas times micro-batches.
    """
    variables = State.variables_of(model, seed_generator)
    statistics = {id(variable) for variable in trainer.statistics_of(model)}
    backward = _compiled(model, make_backward(model, variables, may_be_empty))

    def replica_step(rows: Rows, worker_batch):
        seeds.share_global_generator(seed_generator)
        batch = replica_batch(worker_batch, rows, share)
        before = values = variables.read()
        totals = loss_totals(model, variables, values, batch, training=True)
        gradients: list = [None] * len(variables.trainable)
        for index in range(accumulate_steps):
            # One micro-batch after the other: memory for one only.
            with tf.control_dependencies(_present(gradients)):
                part = batch.part(index, accumulate_steps)
            found, values = backward(values, part, totals)
            gradients = _add(gradients, found)
        _synchronise_and_update(
            model, variables, gradients, variables.changed(before, values), statistics, batch.weight
        )

    return replica_step


def make_backward(model, variables: State, may_be_empty: bool):
    """`(values, part, totals) -> (gradients, values after)`: a pure function of one micro-batch."""

    def backward(values: State, part: Part, totals: list):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values.trainable)
            loss, after = forward(model, variables, values, part, totals, training=True)
            scaled = model.optimizer.scale_loss(loss)
            weighted = scaled * tf.cast(part.weight, scaled.dtype)
        gradients = [_dense(*pair) for pair in zip(tape.gradient(weighted, values.trainable), values.trainable)]
        return gradients, keep_if_empty(part, variables, values, after) if may_be_empty else after

    return backward


def _synchronise_and_update(model, variables: State, gradients: list, changed: list, statistics: set, weight) -> None:
    """One all-reduce over gradients and batch statistics, then the update on every device."""
    present = _present(gradients)
    shared = [(variable, value) for variable, value in changed if id(variable) in statistics]
    own = [(variable, value) for variable, value in changed if id(variable) not in statistics]
    weighted = [value * replica_share(value, weight) for _, value in shared]
    summed = sum_over_replicas(present + weighted)
    found = iter(summed[: len(present)])
    complete = [None if gradient is None else next(found) for gradient in gradients]
    agreed = list(zip([variable for variable, _ in shared], summed[len(present) :]))
    update(model.optimizer, complete, variables.trainable, agreed + own)


def _compiled(model, function):
    """`function` under XLA if the model asks for it: the local part alone, since collectives cannot be compiled."""
    return tf.function(function, jit_compile=True, autograph=False) if model.jit_compile else function


def _dense(gradient, value):
    return gradient if gradient is None else tf.ensure_shape(tf.convert_to_tensor(gradient), value.shape)


def _present(gradients: list) -> list:
    return [gradient for gradient in gradients if gradient is not None]


def _add(left: list, right: list) -> list:
    return [b if a is None else a if b is None else a + b for a, b in zip(left, right)]
