"""`evaluate`."""

from tfdist.data import as_data
from tfdist.heartbeat import rest
from tfdist.loop import checks, runner
from tfdist.loop.callbacks import callback_list
from tfdist.loop.course import Course
from tfdist.loop.drive import Driver
from tfdist.loop.feed import Feed
from tfdist.loop.pace import Pace
from tfdist.loop.pauses import Pauses
from tfdist.strategy import share_of


def evaluate(
    model, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, steps=None, callbacks=None
) -> dict:
    """The loss and metrics of a compiled model on all of the data, each example counted once.

    Call it on every worker alike. The arguments are those of `keras.Model.evaluate`; `x` and `batch_size` as in
    `tfdist.fit`.

    Returns:
        Floats by name, the same on every worker.

    Raises:
        UserError: an argument that cannot work; the message says what to do.
    """
    checks.check_compiled(model, "evaluate")
    checks.check_strategy(model)
    checks.check_scope(model)
    evaluation = Evaluation(model, as_data(x, y, sample_weight), batch_size, steps)
    chief = evaluation.feed.share.worker == 0
    container = callback_list(
        callbacks, model, is_chief=chief, verbose=verbose, history=False, epochs=1, steps=evaluation.feed.steps
    )
    logs = evaluation.run(container, Pauses([]))
    rest()
    return logs


class Evaluation:
    """An evaluation that can be run again and again: after each epoch, say."""

    def __init__(self, model, data, batch_size, steps=None):
        share = share_of(model.distribute_strategy)
        self.feed = Feed(data, batch_size, share, steps=steps, once=True)
        checks.check_evaluation(model, share, self.feed.smallest_batch)
        checks.check_same_data(model.distribute_strategy, self.feed)
        runner.build(model, self.feed.batch_spec)
        self._model, self._runner = model, runner.evaluate_runner(model, self.feed)
        self._pace = Pace(None)

    def run(self, callbacks, pauses: Pauses) -> dict:
        """Evaluates once, from the first example, with Keras's test hooks."""
        self._model.stop_evaluating = False
        callbacks.on_test_begin()
        self.feed.start()
        course = Course()
        Driver(self._model, self._runner, self.feed, self._pace, "test", course, pauses).run_epoch(callbacks)
        callbacks.on_test_end(course.logs)
        return course.logs
