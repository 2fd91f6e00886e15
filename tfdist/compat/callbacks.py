"""Which attributes of Keras's callbacks change while a model trains.

Private names: those of the attributes that begin with an underscore, and `MonitorCallback._set_monitor_op`.
"""

_COUNTERS = ("_batches_seen_since_last_saving", "_last_batch_seen", "_current_epoch")
_STATE = {
    "EarlyStopping": ("best", "wait", "stopped_epoch", "best_epoch", "best_weights"),
    "History": ("epoch", "history"),
    "ModelCheckpoint": ("best", *_COUNTERS),
    "OrbaxCheckpoint": ("best", "_total_batches_seen", *_COUNTERS),
    "ReduceLROnPlateau": ("best", "wait", "cooldown_counter"),
    "SwapEMAWeights": ("_ema_weights_in_model",),
    "TensorBoard": ("_global_train_batch", "_global_test_batch"),
}


def state_names(callback) -> list[str]:
    """The attributes that make up the state of a callback of Keras, or of a class derived from one.

    Some are there only once the callback has been called.
    """
    stock = [of.__name__ for of in type(callback).__mro__ if of.__module__.startswith("keras.src.callbacks.")]
    return [name for of in stock for name in _STATE.get(of, ())]


def restored(callback) -> None:
    """Has a callback that compares with a best value know at once what is better, not at the end of an epoch only."""
    if getattr(callback, "best", None) is not None and getattr(callback, "monitor_op", True) is None:
        callback._set_monitor_op()
