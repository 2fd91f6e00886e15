"""The batches of a run, epoch after epoch, for this worker."""

import functools

import tensorflow as tf

from tfdist.batching import EpochPlan, Share
from tfdist.data.class_weight import with_class_weight
from tfdist.data.python_read import reading_errors
from tfdist.errors import DataError

DEFAULT_BATCH_SIZE = 32
"""Keras's default, for data that is not batched yet."""


class Feed:
    """What the loops read from `Data`: an iterator for each epoch and the number of its steps.

    Data of known size is read by one iterator that goes on over the epochs, so that the next epoch's batches are
    prepared while the last of this one train. Data of unknown size is read anew in every epoch.
    """

    def __init__(
        self, data, batch_size, share: Share, *, steps=None, once=False, drop_remainder=False, class_weight=None
    ):
        """`steps`: steps per epoch, None for all of the data; `once`: no epoch is longer than the data.

        Afterwards `size` has the steps in which the data is through, and `steps` those of an epoch; None if unknown.
        """
        if batch_size is None and data.examples is not None:
            batch_size = DEFAULT_BATCH_SIZE
        self.data, self.batch_size, self.share = data, batch_size, share
        self._drop, self._class_weight = drop_remainder, class_weight
        self.size = data.steps_per_epoch(batch_size, drop_remainder)
        self.steps = steps if steps is not None else self.size
        if once and self.size is not None:
            self.steps = min(self.steps, self.size)
        self._epoch = self._first_step = 0
        self._iterator = None
        self._made: dict = {}

    @property
    def is_known(self) -> bool:
        """Whether the workers know, without asking each other, how many steps follow and how many rows each has."""
        return self.steps is not None and not self.data.shares_rows

    @property
    def is_endless(self) -> bool:
        """Whether one iteration of the data goes on for ever."""
        return bool(self._batches(repeat=False).cardinality() == tf.data.INFINITE_CARDINALITY)

    @functools.cached_property
    def batch_spec(self):
        """Nested `tf.TensorSpec` of one batch."""
        return self._batches(repeat=False).element_spec[2]

    def identity(self) -> dict:
        """What must be the same on all workers."""
        return self.data.identity() | {
            "batch_size": self.batch_size, "steps per epoch": self.steps, "drop_remainder": self._drop
        }  # fmt: skip

    @property
    def smallest_batch(self) -> int:
        """A lower bound of the rows of a global batch."""
        plan = self.plan
        return self.data.fewest_rows if plan is None else plan.last_rows

    @property
    def plan(self) -> EpochPlan | None:
        """How an epoch is cut into global batches; None for data of unknown size."""
        examples = self.data.examples
        if examples is None or self.batch_size is None:
            return None
        return EpochPlan(examples, self.batch_size, self._drop)

    def start(self, first_epoch: int = 0, step: int = 0) -> None:
        """Positions the feed at a step of an epoch."""
        self._epoch, self._first_step = first_epoch, step
        if self.steps is None:
            self._check_finite()
            return
        first_step = first_epoch * self.steps + step
        self._iterator = iter(self._batches(repeat=self.size is not None, first_step=first_step))

    def epoch(self):
        """The iterator over `(rows, ids, batch)` for the next epoch, or for what is left of the first one."""
        if self.steps is not None:
            return self._iterator
        start = {"first_epoch": self._epoch, "first_step": self._first_step}
        self._epoch, self._first_step = self._epoch + 1, 0
        return iter(self._batches(repeat=False, **start))

    def _batches(self, *, repeat: bool, **start: int) -> tf.data.Dataset:
        """`start`: `first_step`, or `first_epoch` where steps are not known. Made once, since tracing takes time."""
        key = (repeat, *start.items())
        if key not in self._made:
            with reading_errors():
                batches = self.data.worker_batches(
                    self.batch_size, self.share, drop_remainder=self._drop, repeat=repeat, **start
                )
            # The pipelines of other epochs are not needed any more.
            self._made = {key: with_class_weight(batches, self._class_weight) if self._class_weight else batches}
        return self._made[key]

    def _check_finite(self) -> None:
        if self.is_endless:
            raise DataError(
                "The data never ends and nothing says how long an epoch is. Give steps_per_epoch (or steps, "
                "validation_steps)."
            )
