"""What a compiled Keras model knows and does not say in public.

Private names: `Model._symbolic_build`, `_compute_loss` (calls an overridden `compute_loss` with or without
`training`), `_loss_tracker`, `_compile_metrics`, `_compile_loss.metrics`, `_call_has_training_arg`, `_flatten_layers`,
`_flatten_metrics_in_order`, `Layer._non_trainable_variables`, and
`keras.src.backend.tensorflow.trainer.TensorFlowTrainer` (where the stock steps are defined).
"""

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from tfdist.errors import UnsupportedError


def build(model, batch_spec) -> None:
    """Builds model, losses, metrics and optimizer from a batch's specification, without data.

    Stock Keras builds from a batch reduced over the replicas, which fails on several workers.

    Args:
        model: a compiled model; call this inside its strategy's scope.
        batch_spec: nested `tf.TensorSpec` of `x`, `(x, y)` or `(x, y, sample_weight)`.
    """
    model._symbolic_build(data_batch=keras.tree.map_structure(_none_or_spec, batch_spec))


def _none_or_spec(leaf):
    return leaf if isinstance(leaf, tf.TensorSpec) else None


def call(model, x, training):
    """The model's outputs, with `training` where its `call` takes it."""
    return model(x, training=training) if model._call_has_training_arg else model(x)


def compute_loss(model, x, y, y_pred, sample_weight, training):
    """The model's own `compute_loss`, overridden or not."""
    return model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)


def loss_tracker(model):
    """The metric that averages the loss."""
    return model._loss_tracker


def output_loss_metrics(model) -> list:
    """The averages of each output's loss; they exist for models with several losses."""
    return list(model._compile_loss.metrics) if model._compile_loss is not None else []


def compilation_of(model):
    """An object that lives as long as the model is not compiled again."""
    return model._loss_tracker


def overrides(model, method: str) -> bool:
    """Whether the model replaces a stock step such as `train_step`."""
    return getattr(type(model), method) is not getattr(TensorFlowTrainer, method)


def has_call(model) -> bool:
    """Whether the model can be called on its inputs."""
    return type(model).call is not keras.Model.call


def optimizers_of(model) -> list:
    """The compiled optimizer and any other that the model holds as an attribute."""
    found = [model.optimizer] if model.optimizer is not None else []
    for value in vars(model).values():
        if isinstance(value, keras.optimizers.Optimizer) and all(value is not known for known in found):
            found.append(value)
    return found


def statistics_of(model) -> list:
    """Variables that layers update in the forward pass, such as batch statistics; seeds and frozen weights are none."""
    return _unique(
        [
            variable
            for layer in model._flatten_layers()
            for variable in layer._non_trainable_variables
            if not is_seed(variable)
        ]
    )


def state_of(model, seed_generator) -> list:
    """Variables that a forward pass may update.

    All that are not trained, those that a layer has without declaring them (as a stateful RNN has its states), and the
    state of the generator behind `seed=None`.
    """
    attributes = [value for layer in model._flatten_layers() for value in vars(layer).values()]
    undeclared = [variable for value in attributes for variable in _variables_in(value) if not variable.trainable]
    return _unique([*model.non_trainable_variables, *undeclared, seed_generator.state])


def metrics_state_of(model) -> list:
    """Variables of all metrics: also of those that a model's own `metrics` leaves out and the stock steps update."""
    stock = [model._loss_tracker, model._compile_metrics, *output_loss_metrics(model)]
    own = [variable for metric in stock if metric is not None for variable in metric.variables]
    return _unique([*model.metrics_variables, *own])


def flatten_logs(model, logs: dict):
    """What `evaluate(return_dict=False)` returns of its logs: a list in Keras's order, or the one value."""
    return model._flatten_metrics_in_order(logs)


def _variables_in(value) -> list:
    """A variable, or those in a list or tuple of them."""
    if isinstance(value, list | tuple):
        return [variable for item in value for variable in _variables_in(item)]
    return [value] if isinstance(value, keras.Variable) else []


def _unique(variables: list) -> list:
    return list({id(variable): variable for variable in variables}.values())


def is_seed(variable) -> bool:
    """Whether the variable is a seed generator's state, which counts calls and not rows."""
    return variable.name == "seed_generator_state"


def check_updates(scope_values: dict, known: list, trained: list) -> None:
    """Refuses updates that would be lost.

    Args:
        scope_values: `id(variable) -> value` after a forward pass.
        known: the variables whose updates are kept.
        trained: `(variable, value)` before the pass of those that the optimizer updates.

    Raises:
        UnsupportedError: a variable was updated that is neither the model's nor a metric's, or that is trained.
    """
    lost = set(scope_values) - {id(variable) for variable in known}
    if lost:
        raise UnsupportedError(
            f"{len(lost)} variable(s) are updated by the model's forward pass or metrics but are not tracked by the "
            "model. Make each an attribute of a layer, of the model or of a metric."
        )
    assigned = [variable.path for variable, value in trained if scope_values[id(variable)] is not value]
    if assigned:
        raise UnsupportedError(
            f"The forward pass assigns weights that are trained: {', '.join(assigned[:3])}, as SpectralNormalization "
            "does. Leave that layer out, or compute with a changed value without assigning it."
        )


def cache_of(model) -> dict:
    """A place for traced steps that is forgotten with the model, or when the model is compiled again."""
    token, cache = model.__dict__.get("_tfdist_steps", (None, {}))
    if token is not compilation_of(model):
        cache = {}
        model.__dict__["_tfdist_steps"] = (compilation_of(model), cache)
    return cache
