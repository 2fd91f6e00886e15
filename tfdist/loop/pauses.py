"""What callbacks do between two steps, where all workers have come to the same place.

Before each traced call, and so about three times a second, the workers agree on how many steps it runs. A callback
that wants all of them to pause there has two methods more than Keras's:

    wish() -> Pause | None    what it would like, on this worker alone; asked before each call, so it has to be quick
    on_pause(pause)           on every worker, at the same step, after one of them has wished for it
    on_epoch_over()           on every worker, between two epochs: after `on_epoch_end` of all callbacks

and with a method `set_training(training)` it is given the `tfdist.loop.training.Training`, on every worker, after
`on_train_begin` of all callbacks.
"""

from tfdist.progress import Pause


class Pauses:
    """The wishes of the callbacks of a worker."""

    def __init__(self, callbacks: list):
        self._callbacks = [callback for callback in callbacks if hasattr(callback, "on_pause")]

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
