"""Which callbacks run on which worker."""

import keras

_WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard,
            keras.callbacks.RemoteMonitor)  # fmt: skip


def callback_list(callbacks, model, *, is_chief: bool, verbose, history: bool, epochs: int, steps):
    """Keras's container of the callbacks that act on this worker.

    Those that write act on the chief alone: Keras's ModelCheckpoint, CSVLogger, TensorBoard and RemoteMonitor, and any
    callback with a true attribute `chief_only`. All others act on every worker, with the same logs.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    chosen = [callback for callback in keras.tree.flatten(callbacks or []) if is_chief or not _writes(callback)]
    return keras.callbacks.CallbackList(
        chosen,
        add_history=history,
        add_progbar=is_chief and verbose != 0,
        model=model,
        verbose=verbose if is_chief else 0,
        epochs=epochs,
        steps=steps,
    )


def _writes(callback) -> bool:
    return getattr(callback, "chief_only", isinstance(callback, _WRITERS))
