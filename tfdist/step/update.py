"""The optimizer step, on every device's own copy of the variables."""

import tensorflow as tf

from tfdist.compat.optimizers import single_device_updates

MIRRORING = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
"""The strategies whose variables have a copy on each device."""


def update(optimizer, gradients: list, trainable: list, assignments: list) -> None:
    """Applies `gradients` and then assigns, on every device alike. To be called in replica context, once a step.

    Args:
        optimizer: a built Keras optimizer, or None if there is nothing to apply.
        gradients: summed over the replicas, one for each variable of `trainable`, or None where there is none.
        trainable: Keras variables.
        assignments: `(Keras variable, value)` pairs.
    """
    present = [i for i, gradient in enumerate(gradients) if gradient is not None]
    targets = [variable for variable, _ in assignments]

    def on_device(found, values):
        full: list = [None] * len(gradients)
        for i, gradient in zip(present, found):
            full[i] = gradient
        if optimizer is not None:
            with single_device_updates():
                type(optimizer).apply(optimizer, full, trainable)
        for variable, value in zip(targets, values):
            variable.assign(value)

    _on_every_device(on_device, [gradients[i] for i in present], [value for _, value in assignments])


def _on_every_device(function, *args) -> None:
    """Runs `function` where a distributed variable stands for the device's own copy."""
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, MIRRORING):
        function(*args)
        return

    def in_cross_replica_context(strategy, *args):
        strategy.extended.update_non_slot(strategy.extended.worker_devices, function, args=args, group=False)

    tf.distribute.get_replica_context().merge_call(in_cross_replica_context, args=args)
