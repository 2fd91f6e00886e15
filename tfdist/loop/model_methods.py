"""`model.fit`, `evaluate` and `predict` of distributed models by way of tfdist, for scripts that call them."""

import functools

import keras
import tensorflow as tf

from tfdist.compat import trainer
from tfdist.loop.evaluate import evaluate
from tfdist.loop.fit import fit
from tfdist.loop.predict import predict


def enable_model_fit() -> None:
    """Lets `fit`, `evaluate` and `predict` of models made under a strategy with several replicas go through tfdist.

    Models made elsewhere keep Keras's own methods. A second call changes nothing. With `evaluate`'s
    `return_dict=False` the values come in Keras's order.
    """
    for name, replacement in (("fit", fit), ("evaluate", _evaluate), ("predict", predict)):
        stock = getattr(keras.Model, name)
        if stock.__module__ != __name__:
            setattr(keras.Model, name, _routed(stock, replacement))


def _routed(stock, replacement):
    @functools.wraps(stock, assigned=("__doc__", "__name__", "__qualname__"))
    def method(model, *args, **kwargs):
        strategy = model.distribute_strategy
        distributed = strategy.num_replicas_in_sync > 1 or isinstance(
            strategy, tf.distribute.MultiWorkerMirroredStrategy | tf.distribute.ParameterServerStrategy
        )
        return (replacement if distributed else stock)(model, *args, **kwargs)

    return method


def _evaluate(model, *args, return_dict=False, **kwargs):
    logs = evaluate(model, *args, **kwargs)
    return logs if return_dict else trainer.flatten_logs(model, logs)
