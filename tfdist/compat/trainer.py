"""What a compiled Keras model knows and does not say in public.

Private names: `Model._symbolic_build`, `_compute_loss` (calls an overridden `compute_loss` with or without
`training`), `_loss_tracker`, `_compile_loss.metrics`, `_call_has_training_arg`, `_flatten_layers`,
`Layer._non_trainable_variables`, `keras.src.backend.tensorflow.trainer.TensorFlowTrainer` (where the stock steps
are defined).
"""

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.layers.layer import Layer

from tfdist.errors import UnsupportedError


def build(model, batch_spec) -> None:
    """Builds model, losses, metrics and optimizer from a batch's specification, without data.

    Stock Keras builds from a batch reduced over the replicas, which fails on several workers.

    Args:
        model: a compiled model; call this inside its strategy's scope.
        batch_spec: nested `tf.TensorSpec` of `x`, `(x, y)` or `(x, y, sample_weight)`.
    """
    model._symbolic_build(data_batch=batch_spec)


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


def may_divide_by_other_than_rows(model) -> bool:
    """Whether a loss may be divided by a mask's or the weights' sum: reductions, masks, or a loss of the user's own."""
    if type(model).compute_loss is not keras.Model.compute_loss:
        return True
    flat = [loss for loss in keras.tree.flatten(model.loss) if loss is not None]
    if any(getattr(loss, "reduction", "") == "mean_with_sample_weight" for loss in flat):
        return True
    return any(type(layer).compute_mask is not Layer.compute_mask for layer in model._flatten_layers())


def optimizers_of(model) -> list:
    """The compiled optimizer and any other that the model holds as an attribute."""
    found = [model.optimizer] if model.optimizer is not None else []
    for value in vars(model).values():
        if isinstance(value, keras.optimizers.Optimizer) and all(value is not known for known in found):
            found.append(value)
    return found


def statistics_of(model) -> list:
    """Float variables that layers update in the forward pass, such as batch statistics; frozen weights are none."""
    found = {
        id(variable): variable
        for layer in model._flatten_layers()
        for variable in layer._non_trainable_variables
        if tf.as_dtype(variable.dtype).is_floating
    }
    return list(found.values())


def state_of(model, seed_generator) -> list:
    """Variables that a forward pass may update: all non-trainable ones, and the generator behind `seed=None`."""
    found = {id(variable): variable for variable in [*model.non_trainable_variables, seed_generator.state]}
    return list(found.values())


def check_tracked(scope_values: dict, known: list) -> None:
    """Refuses updates to variables that the model does not track, since they would be lost.

    Raises:
        UnsupportedError: a variable was updated that is neither the model's nor a metric's.
    """
    lost = set(scope_values) - {id(variable) for variable in known}
    if lost:
        raise UnsupportedError(
            f"{len(lost)} variable(s) are updated by the model's forward pass or metrics but are not tracked by the "
            "model. Make each an attribute of a layer, of the model or of a metric."
        )


def cache_of(model) -> dict:
    """A place for traced steps that is forgotten with the model, or when the model is compiled again."""
    token, cache = model.__dict__.get("_tfdist_steps", (None, {}))
    if token is not compilation_of(model):
        cache = {}
        model.__dict__["_tfdist_steps"] = (compilation_of(model), cache)
    return cache
