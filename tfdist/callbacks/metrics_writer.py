"""Hands a training's metrics to a writer."""

import contextlib
import logging
import time

import keras

from tfdist.strategy import is_chief

_log = logging.getLogger(__name__)


class MetricsWriter(keras.callbacks.Callback):
    """Writes loss, metrics, learning rate, step time and examples per second, on the chief alone.

    After each epoch: Keras's logs, those of the validation included, and `epoch`, counted from 1. With `every_steps`
    also in between: the averages over the epoch so far, as `running_loss` and so on. `learning_rate` is that of the
    next step. `step_time` (seconds) and `examples_per_second` (of all workers) cover the epoch, or the steps since
    the last write, without the validation, of this run; the first ones contain the tracing. The step of a write is the
    optimizer's. Its state goes into checkpoints: a training that is resumed writes on from where it was saved, and what
    had been written later is taken back.

    Args:
        writer: A `tfdist.writers.Writer`; it is closed at the end of the training.
        batch_size: Rows of a global batch; without it there are no examples per second.
        examples: Rows of an epoch, to count a partial last batch as what it is.
        every_steps: Write every so many steps too; None: once an epoch. `tfdist.fit` reads it to run the steps in
            between in one call.
        clock: Gives seconds.
    """

    def __init__(self, writer, *, batch_size=None, examples=None, every_steps=None, clock=time.perf_counter):
        super().__init__()
        self._writer, self._batch_size, self._examples, self._clock = writer, batch_size, examples, clock
        self.every_steps = every_steps
        self._writes = False
        self._before = self._steps = 0  # steps before this epoch, and of it
        self._first = self._last = 0  # steps of this epoch at the start of the run, and at the last write
        self._epoch_start = self._last_time = self._test_start = 0.0

    def on_train_begin(self, logs=None):
        self._writes = is_chief(self.model.distribute_strategy)
        self._before = self._steps = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._first = self._last = self._steps
        self._epoch_start = self._last_time = self._clock()

    def on_train_batch_end(self, batch, logs=None):
        before, self._steps = self._before + self._steps, batch + 1
        every = self.every_steps
        if every and (self._before + self._steps) // every > before // every:
            values = {f"running_{name}": value for name, value in (logs or {}).items()}
            self._write({**values, **self._speed(self._last, self._last_time)})
            self._last, self._last_time = self._steps, self._clock()

    def on_test_begin(self, logs=None):
        self._test_start = self._clock()

    def on_test_end(self, logs=None):
        tested = self._clock() - self._test_start
        self._epoch_start += tested
        self._last_time += tested

    def on_epoch_end(self, epoch, logs=None):
        self._write({"epoch": epoch + 1, **(logs or {}), **self._speed(self._first, self._epoch_start)})
        self._before, self._steps = self._before + self._steps, 0

    def on_train_end(self, logs=None):
        with _going_on():
            self._writer.close()

    def get_state(self):
        """For a checkpoint: how far the training and the output are."""
        return {"before": self._before, "steps": self._steps, "mark": self._mark()}

    def set_state(self, state):
        """Goes on from a checkpoint."""
        self._before, self._steps = state["before"], state["steps"]
        if self._writes:
            self._writer.rewind(state["mark"])

    def _mark(self):
        mark = {}
        if self._writes:
            with _going_on():
                mark = self._writer.mark()
        return mark

    def _speed(self, first_step, start):
        steps, seconds = self._steps - first_step, self._clock() - start
        if steps < 1 or seconds <= 0:
            return {}
        speed = {"step_time": seconds / steps}
        if self._batch_size:
            speed["examples_per_second"] = (self._rows(self._steps) - self._rows(first_step)) / seconds
        return speed

    def _rows(self, steps):
        rows = steps * self._batch_size
        return min(rows, self._examples) if self._examples else rows

    def _write(self, values):
        if not self._writes:
            return
        optimizer = self.model.optimizer
        values["learning_rate"] = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        step = int(optimizer.iterations.numpy())
        with _going_on():
            self._writer.write_scalars(step, values)
            self._writer.flush()


@contextlib.contextmanager
def _going_on():
    """A training does not end for its metrics."""
    try:
        yield
    except OSError as error:
        _log.error(
            "The metrics are not written: %s. The training goes on; free some space, or mount the folder.", error
        )
