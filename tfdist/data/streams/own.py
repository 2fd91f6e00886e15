"""Data sets of which each worker has its own."""

import abc
import dataclasses
import functools
import logging
from collections.abc import Callable

import tensorflow as tf

from tfdist.batching import Share
from tfdist.compat.dataset_digest import digest_of
from tfdist.compat.dataset_epochs import epoch_of
from tfdist.compat.datasets import graph_of
from tfdist.data.streams.plan import ReadOwn
from tfdist.data.streams.rows import check_batched
from tfdist.data.streams.stream import Stream
from tfdist.errors import DataError

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class OwnStream(Stream):
    """Batches of each worker's own, with its rows of a global batch in each."""

    _made: dict = dataclasses.field(default_factory=dict, init=False, repr=False)

    @property
    def shares_rows(self) -> bool:
        return True

    @abc.abstractmethod
    def _read_by(self, share: Share) -> tf.data.Dataset:
        """The data set of one worker."""

    def _cardinality(self) -> None:
        """None: each worker has as many batches as it has."""

    def _epoch(self, epoch: int, share) -> tf.data.Dataset:
        if share not in self._made:
            dataset = self._read_by(share)
            self._made[share] = dataset, graph_of(dataset)
        dataset, graph = self._made[share]
        return epoch_of(dataset, graph, epoch)


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionStream(OwnStream):
    """What a function of the `tf.distribute.InputContext` returns for each worker."""

    make: Callable

    def _raw_spec(self):
        return self._spec

    @functools.cached_property
    def _spec(self):
        return self._dataset(Share()).element_spec

    def _read_by(self, share: Share) -> tf.data.Dataset:
        dataset = self._dataset(share)
        if share.workers > 1:
            self._check_depends(dataset, share)
            _log.info("%s", ReadOwn(share.workers))
        return dataset

    def _dataset(self, share: Share) -> tf.data.Dataset:
        """Raises DataError unless it is one of batches."""
        context = tf.distribute.InputContext(share.workers, share.worker, share.replicas)
        dataset = self.make(context)
        if not isinstance(dataset, tf.data.Dataset):
            raise DataError(
                f"The function of the input context returned a {type(dataset).__name__}: it returns the "
                "tf.data.Dataset of one worker, batched with this worker's rows of a global batch."
            )
        check_batched(dataset.element_spec)
        return dataset

    def _check_depends(self, dataset: tf.data.Dataset, share: Share) -> None:
        other = dataclasses.replace(share, worker=(share.worker + 1) % share.workers)
        own, others = (digest_of(graph_of(made), in_one_process=True) for made in (dataset, self._dataset(other)))
        if own == others:
            raise DataError(
                f"The function of the input context returns the same data set for the workers {share.worker} and "
                f"{other.worker}: all would train on the same rows. Let it look at the context: "
                "`files.shard(context.num_input_pipelines, context.input_pipeline_id)`. Or hand over the data set "
                "itself, of global batches."
            )
