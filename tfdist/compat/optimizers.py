"""Keras optimizers run on each device's own copy of the variables.

Stock Keras clips before the all-reduce, updates through `merge_call` and so cannot overwrite weights with
their moving average, or accumulate, inside control flow. Here the gradient is summed first and then every
device runs the optimizer's single-device code on its own copies, inside `update_non_slot`, where a
distributed variable stands for the local copy.

Private names: the methods by which `TFOptimizer` distributes what `BaseOptimizer` does on one device
(`_apply_weight_decay`, `_backend_update_step`, `_overwrite_model_variables_with_average_value`,
`_backend_increment_gradient_accumulators`), `LossScaleOptimizer._tf_apply` against `_common_apply`, and
`_trainable_variables` and `_learning_rate`.
No public switch chooses between the two.
"""

import contextlib

import keras
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from tfdist.compat.patching import patched

_DISTRIBUTED_METHODS = (
    "_apply_weight_decay",
    "_backend_update_step",
    "_overwrite_model_variables_with_average_value",
    "_backend_increment_gradient_accumulators",
)


@contextlib.contextmanager
def single_device_updates():
    """While it lasts, Keras optimizers update variables as they do without a strategy."""
    replacements = [(TFOptimizer, name, BaseOptimizer.__dict__[name]) for name in _DISTRIBUTED_METHODS]
    loss_scale = keras.optimizers.LossScaleOptimizer
    replacements.append((loss_scale, "_tf_apply", loss_scale.__dict__["_common_apply"]))
    with patched(replacements):
        yield


def inner_optimizer(optimizer):
    """The optimizer that updates weights: what a `LossScaleOptimizer` wraps, or `optimizer` itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def learning_rate_of(optimizer):
    """The variable, schedule or function that the optimizer's rate comes from; a traced step keeps to it."""
    return inner_optimizer(optimizer)._learning_rate


def trained_variables(optimizer) -> list:
    """The variables that the optimizer was built for, which `apply(gradients)` without variables means."""
    return optimizer._trainable_variables
