"""How many steps one traced call runs: as many as nobody needs to look in between."""

import keras

_SECONDS_PER_CALL = 0.3
"""Long enough for a call's cost to vanish, short enough for a progress bar and a stop."""


class Pace:
    """Grows from one step a call to about `_SECONDS_PER_CALL` a call."""

    def __init__(self, steps_per_call: int | None):
        """`steps_per_call`: a fixed number, or None to find it."""
        self._fixed = steps_per_call
        self._steps = 1

    def steps(self, limit: int) -> int:
        """Steps of the next call, at most `limit`."""
        return min(self._fixed or self._steps, limit)

    def observe(self, seconds_per_step: float) -> None:
        """Takes in how long the steps of the last call took."""
        self._steps = max(1, min(2 * self._steps, int(_SECONDS_PER_CALL / seconds_per_step)))


def steps_until_look(callbacks: list, step: int, kind: str) -> int | None:
    """Steps from `step` (counted since the first epoch) until a callback's batch hook is due; None if none ever is."""
    intervals = [interval for interval in (_interval(callback, kind) for callback in callbacks) if interval]
    return min((interval - step % interval for interval in intervals), default=None)


def _interval(callback, kind: str) -> int | None:
    """Every how many steps a callback wants its batch hooks called; None if it does not care.

    A callback may say so itself with an attribute `every_steps` (int or None). The stock callbacks' own settings are
    understood; any other that overrides a batch hook is called at every step.
    """
    hooks = [f"on_{kind}_batch_begin", f"on_{kind}_batch_end"]
    hooks += ["on_batch_begin", "on_batch_end"] if kind == "train" else []
    if isinstance(callback, keras.callbacks.ProgbarLogger) or not any(_overridden(callback, hook) for hook in hooks):
        return None
    if hasattr(callback, "every_steps"):
        return callback.every_steps
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        return None if callback.save_freq == "epoch" else callback.save_freq
    if isinstance(callback, keras.callbacks.TensorBoard):
        return callback.update_freq if isinstance(callback.update_freq, int) else {"batch": 1}.get(callback.update_freq)
    return 1


def _overridden(callback, hook: str) -> bool:
    method = getattr(callback, hook)
    return getattr(method, "__func__", method) is not getattr(keras.callbacks.Callback, hook)
