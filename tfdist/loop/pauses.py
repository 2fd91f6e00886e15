"""What callbacks do between two steps, where all workers have come to the same place.

Before each traced call, and so about three times a second, the workers agree on how many steps it runs. A callback
that takes part has, beside Keras's, all of these methods:

    set_training(training)    on every worker, before `on_train_begin`: a `tfdist.loop.training.Training`
    on_start()                on every worker, after `on_train_begin` of all callbacks
    wish() -> Pause | None    what it would like, on this worker alone; asked before each call, so it has to be quick
    on_pause(pause)           on every worker, at the same step, after one of them has wished for it
    on_epoch_over()           on every worker, between two epochs: after `on_epoch_end` of all callbacks
"""

from tfdist.progress import Pause


class Pauses:
    """The callbacks of a worker that take part."""

    def __init__(self, callbacks: list):
        self._callbacks = [callback for callback in callbacks if hasattr(callback, "on_pause")]

    def introduce(self, training) -> None:
        """Gives them the training."""
        for callback in self._callbacks:
            callback.set_training(training)

    def begin(self) -> None:
        """Tells them that all callbacks have begun."""
        for callback in self._callbacks:
            callback.on_start()

    def wish(self) -> Pause | None:
        """What this worker wants before the next step."""
        wishes = [wish for callback in self._callbacks if (wish := callback.wish()) is not None]
        return min(wishes, default=None)

    def grant(self, pause: Pause) -> None:
        """Has the callbacks act. Raises what they raise: to leave is to raise."""
        for callback in self._callbacks:
            callback.on_pause(pause)

    def epoch_is_over(self) -> None:
        """Tells the callbacks that all of them know it."""
        for callback in self._callbacks:
            callback.on_epoch_over()
