"""One pass over one part of a batch, as a pure function of the variables' values."""

import keras
import tensorflow as tf

from tfdist.compat import losses, trainer
from tfdist.step.parts import Part, ReplicaBatch
from tfdist.step.reduce import sum_over_replicas
from tfdist.step.state import State


def forward(model, variables: State, values: State, part: Part, totals: list, training: bool):
    """Outputs, loss and metrics of `part`, with nothing assigned.

    Args:
        model: a built, compiled model.
        variables: its variables; `values`: the values to compute with.
        part: the rows.
        totals: what `loss_totals` gave for the batch.
        training: passed to the model and to its `compute_loss`.

    Returns:
        The loss, whose sum over parts, each times its `weight`, is the loss of the whole batch; and the values after
        the pass, in which the part's rows are counted in the metrics.

    Raises:
        UnsupportedError: the pass updates a variable that the model does not track.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(part.data)
    output_metrics = _OutputLosses(model, variables, values)
    with keras.StatelessScope(variables.pairs(output_metrics.reset), collect_losses=True) as scope:
        y_pred = trainer.call(model, x, training)
        with losses.weighing(part.ratio, totals):
            loss = trainer.compute_loss(model, x, y, y_pred, sample_weight, training)
        trainer.loss_tracker(model).update_state(_loss_of_rows(loss, part), sample_weight=part.rows)
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    known = [variable for kind in variables for variable in kind]
    trainer.check_updates(scope.state_mapping, known, list(zip(variables.trainable, values.trainable)))
    after = State(values.trainable, *([scope.get_current_value(v) for v in kind] for kind in variables[1:]))
    return loss, output_metrics.counted(after, part.rows)


def loss_totals(model, variables: State, values: State, batch: ReplicaBatch, training: bool) -> list:
    """For each loss, what Keras would divide it by on the whole batch: float32 scalars, None where that is rows.

    Empty if every loss is divided by rows alone, which needs no communication. The outputs of this pass are not used,
    only masks and weights are, so that TensorFlow drops all other operations.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch.data)
    with keras.StatelessScope(variables.pairs(values), collect_losses=True), losses.counting() as found:
        trainer.compute_loss(model, x, y, trainer.call(model, x, False), sample_weight, training)
    counts = [count for count in found if count is not None]
    if not counts:
        return []
    real = tf.cast(batch.rows > 0, tf.float32)
    sums = iter(sum_over_replicas([count * real for count in counts]))
    return [None if count is None else next(sums) for count in found]


def keep_if_empty(part: Part, variables: State, before: State, after: State) -> State:
    """`after`, or `before` where the part holds a repeated row only: batch statistics and metrics do not see it.

    Seeds count calls, which are the same on every replica.
    """

    def choose(variable, old, new):
        return new if new is old or trainer.is_seed(variable) else tf.where(part.rows > 0, new, old)

    return State(*([choose(*item) for item in zip(*kinds)] for kinds in zip(variables, before, after)))


def _loss_of_rows(loss, part: Part):
    """The loss that the tracker averages by rows. A loss that is not reduced has been weighed as a sum."""
    return loss / tf.cast(part.ratio, loss.dtype) if loss.shape.rank else loss


class _OutputLosses:
    """The averages of each output's loss, weighted by rows.

    Keras weighs them by the batch's static size, which is unknown for a part. So the pass starts them at zero, what
    they hold afterwards is the part's own average, and that is counted with the part's rows.
    """

    def __init__(self, model, variables: State, values: State):
        totals_and_counts = [variable for metric in trainer.output_loss_metrics(model) for variable in metric.variables]
        wanted = {id(variable) for variable in totals_and_counts}
        self._places = [i for i, variable in enumerate(variables.metrics) if id(variable) in wanted]
        self._before = values.metrics
        zeroed = list(values.metrics)
        for i in self._places:
            zeroed[i] = tf.zeros_like(zeroed[i])
        self.reset = values._replace(metrics=zeroed)

    def counted(self, after: State, rows) -> State:
        metrics = list(after.metrics)
        for total, count in zip(self._places[::2], self._places[1::2]):
            average = tf.math.divide_no_nan(metrics[total], metrics[count])
            metrics[total] = self._before[total] + average * rows
            metrics[count] = self._before[count] + rows
        return after._replace(metrics=metrics)
