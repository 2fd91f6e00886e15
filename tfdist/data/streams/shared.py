"""A data set of global batches that every worker reads whole."""

import dataclasses
import functools
import logging
import os
import sys

import tensorflow as tf

from tfdist.compat.dataset_differences import differences
from tfdist.compat.dataset_digest import digest_of
from tfdist.compat.dataset_epochs import counts_iterations, epoch_of
from tfdist.compat.datasets import goes_by_cores, operations
from tfdist.data.streams.once import Once
from tfdist.data.streams.plan import ReadAll
from tfdist.data.streams.stream import OfDataset, Stream, cardinality_of
from tfdist.errors import DataError

_log = logging.getLogger(__name__)
_POLICY = tf.data.experimental.AutoShardPolicy
_REFUSED = {
    _POLICY.OFF: "says that each worker's data set is its own already, which cannot be seen of this one: all workers "
    "would train on the same rows. Hand over a function of the tf.distribute.InputContext that returns the data set of "
    "one worker, or leave the policy at AUTO",
    _POLICY.HINT: "looks for shard(SHARD_HINT) in the data set, which is not supported. Hand over a function of the "
    "tf.distribute.InputContext, in which you shard by context.input_pipeline_id, or leave the policy at AUTO",
}
# What is read where workers differ.
_GRAPH = (
    "the data set's transformations and constants, such as files in their order, shards and seeds (if it only looks "
    "different on each worker, say so: tfdist.data.from_dataset(dataset, same_on_every_worker=True))"
)
_CORES = "cores, by which an interleave without a cycle_length orders its elements (give it one)"


@dataclasses.dataclass(frozen=True, eq=False)
class SharedStream(OfDataset, Stream):
    """Global batches in the order of a `tf.data.Dataset`, the same on every worker."""

    dataset: tf.data.Dataset
    same_on_every_worker: bool = False
    _told: set = dataclasses.field(default_factory=set, init=False, repr=False)

    def identity(self):
        self._check_shared()
        if self.same_on_every_worker:
            return super().identity()
        found = super().identity() | {_GRAPH: digest_of(self._graph)}
        if goes_by_cores(self._graph):
            found |= {_CORES: _cores()}
        return found | {"first batches": self._once.digest} if self._is_generated else found

    def _cardinality(self):
        return cardinality_of(self.dataset)

    def _epoch(self, epoch: int, share) -> tf.data.Dataset:
        if share.workers > 1:
            self._check_shared()
            self._tell_plan(share.workers)
        if share.workers == 1 or not self._is_generated or (epoch and counts_iterations(self._graph)):
            return epoch_of(self.dataset, self._graph, epoch)
        return self._once.batches()

    @functools.cached_property
    def _is_generated(self) -> bool:
        """Whether Python code makes the elements, of which only a look can tell that they are the same."""
        return not self.same_on_every_worker and "GeneratorDataset" in operations(self._graph)

    @functools.cached_property
    def _once(self) -> Once:
        return Once(epoch_of(self.dataset, self._graph, 0))

    @property
    def _policy(self):
        return _POLICY(self.dataset.options().experimental_distribute.auto_shard_policy)

    def _check_shared(self) -> None:
        """Raises DataError unless several workers may each iterate the data set."""
        if self.same_on_every_worker:
            return
        if self._policy in _REFUSED:
            raise DataError(f"Policy {self._policy.name} {_REFUSED[self._policy]}.")
        if found := differences(self._graph, self.dataset.options()):
            raise DataError(
                "The data set may differ from worker to worker, so that rows would be seen twice or never: "
                f"{'; '.join(found)}. If it is the same on every worker all the same, say so: "
                "tfdist.data.from_dataset(dataset, same_on_every_worker=True)."
            )

    def _tell_plan(self, workers: int) -> None:
        why = "same_on_every_worker=True" if self.same_on_every_worker else f"Policy {self._policy.name}"
        plan = ReadAll(why, workers, self._is_generated)
        if plan not in self._told:
            self._told.add(plan)
            _log.info("%s", plan)


def _cores() -> int | None:
    """The cores that this process may use, as TensorFlow counts them."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
