"""The contract between the sources of data and the loops that read them."""

import abc


class Data(abc.ABC):
    """A finite or endless set of examples, cut into global batches. Immutable; makes no tensor before it is read.

    An element is what Keras packs: `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`, each a tensor or a nest of
    dicts and tuples of tensors. The sequence of global batches never depends on the number of workers, unless
    `shares_rows` says so.
    """

    @property
    @abc.abstractmethod
    def examples(self) -> int | None:
        """Examples in an epoch; None if that is unknown or endless."""

    @property
    @abc.abstractmethod
    def element_spec(self):
        """The nest of `tf.TensorSpec` of one batch, the leading dimension None; None where the element has None."""

    @property
    def shares_rows(self) -> bool:
        """Whether each worker has rows of its own, and a global batch is what the workers have in the same step.

        Then no worker knows the rows of the others: the loops add them up, step by step, until all have ended.
        """
        return False

    @property
    def rows_per_batch(self) -> int | None:
        """Rows of a full global batch, where the data comes in batches and says how large they are; else None."""
        return None

    @property
    def fewest_rows(self) -> int:
        """Of data of unknown size: a lower bound of the rows of a global batch."""
        return 1

    @abc.abstractmethod
    def identity(self) -> dict[str, int | str]:
        """What must be the same on all workers before they train together; the loops compare it."""

    @abc.abstractmethod
    def with_ids(self) -> "Data":
        """The same data with `ids` that tell the examples apart, for a ledger."""

    @abc.abstractmethod
    def steps_per_epoch(self, batch_size: int | None, drop_remainder: bool = False) -> int | None:
        """Global batches in an epoch; None if that is unknown or endless."""

    @abc.abstractmethod
    def worker_batches(self, batch_size, share, *, first_step=0, first_epoch=0, drop_remainder=False, repeat=False):
        """The `tf.data.Dataset` of what one worker reads.

        Its elements are `(rows, ids, batch)`. `rows`, an int64 scalar, counts the rows of the global batch, or this
        worker's alone if `shares_rows`. `ids`, an int64 vector, has a number for each row that the worker has in it.
        `batch` is the element with these rows, in order. A worker that has none in a global batch gets one row all
        the same, which the step has to weigh with 0.

        Args:
            batch_size: rows of a full global batch.
            share: the `tfdist.batching.Share` of the worker that reads.
            first_step: step to start at, counted from the first batch of `first_epoch`. It may lie in a later epoch,
                unless the number of steps per epoch is unknown.
            first_epoch: 0 makes `first_step` the global step. Data of unknown size needs it to start at a later epoch.
            drop_remainder: leave out the last global batch of an epoch if it is partial.
            repeat: go on over the epochs for ever. Otherwise the data set ends with the epoch that holds `first_step`.

        Raises:
            BatchError: the batch size does not fit the data.
            DataError: the data cannot be shared among several workers.
        """
