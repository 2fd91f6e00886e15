"""From what a user hands over to a stream."""

from collections.abc import Callable, Iterator

import tensorflow as tf

from tfdist.data.streams.files import FileStream
from tfdist.data.streams.once import dataset_of_iterator
from tfdist.data.streams.own import FunctionStream
from tfdist.data.streams.rows import check_batched
from tfdist.data.streams.shared import SharedStream
from tfdist.data.streams.stream import Stream, cardinality_of
from tfdist.errors import DataError

_FILE = tf.data.experimental.AutoShardPolicy.FILE


def from_dataset(dataset: tf.data.Dataset | Iterator | Callable, *, same_on_every_worker: bool = False) -> Stream:
    """The data of a `tf.data.Dataset` whose elements are global batches, as Keras's `fit` has it.

    On several workers, who reads what is decided by the data set's
    `options().experimental_distribute.auto_shard_policy`, and logged:

    - AUTO, DATA: every worker reads the whole stream and keeps its rows of each global batch: the same batches at any
      number of workers, at the cost that each worker reads and maps all of it. It has to be one and the same stream,
      so what may differ is refused: shuffles without a seed, `deterministic=False`. Of Python generators the first
      three batches are compared.
    - FILE: every worker reads its own files, and has rows of each global batch in proportion to their bytes. All files
      are read once an epoch; which rows meet in a batch depends on the number of workers. Refused: fewer files than
      workers, files so uneven that a worker would have no row, files or batch size that are not seen in the data set.
    - OFF, HINT: refused.

    Each epoch is a new iteration of the data set, so that a seeded `shuffle` draws another order in each. Of a
    generator each epoch is one iteration, the look at its first batches included. A start at a later step reads up to
    there, which finds the same place only if shuffles have seeds.

    Args:
        dataset: elements `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`, dense, with one leading batch dimension. Or
            a Python iterator of such batches, for one epoch. Or a function of a `tf.distribute.InputContext` that
            returns the data set of one worker, batched with this worker's rows of a global batch.
        same_on_every_worker: your word that every worker's stream is the same, where it is not seen from the data set.
            It switches the refusals off, and policies with them.

    Raises:
        DataError: none of these, not batched, or leaves that are ragged or sparse.
    """
    if isinstance(dataset, Iterator):
        dataset = dataset_of_iterator(dataset)
    elif not isinstance(dataset, tf.data.Dataset) and callable(dataset):
        return FunctionStream(dataset)
    if not isinstance(dataset, tf.data.Dataset):
        raise DataError(
            f"from_dataset({type(dataset).__name__}): a tf.data.Dataset is needed, one that is not distributed yet: "
            "every worker takes its rows by itself. Wrap a Python generator in tf.data.Dataset.from_generator."
        )
    check_batched(dataset.element_spec)
    if cardinality_of(dataset) == 0:
        raise DataError("The data set holds no batch. Check its files, filter and take().")
    asks_for_files = dataset.options().experimental_distribute.auto_shard_policy == _FILE
    if asks_for_files and not same_on_every_worker:
        return FileStream(dataset)
    return SharedStream(dataset, same_on_every_worker)
