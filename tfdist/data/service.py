"""tf.data service: batches that data workers prepare, in the very order in which the trainers would have read them."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator

import tensorflow as tf

from tfdist.batching import part_start
from tfdist.compat.datasets import graph_of, operations
from tfdist.data.base import Data
from tfdist.data.indexed import Indexed
from tfdist.data.order import locate
from tfdist.data.service_probe import address_of, wait_for_servers
from tfdist.data.specs import packed_as, tensors_of
from tfdist.errors import DataError, PeerLostError

_SERVICE = tf.data.experimental.service
_HINT = tf.data.experimental.SHARD_HINT
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
_LOST = (
    "The data service has lost its place: a data worker was lost, or started anew. Run the whole job again, with all "
    "data workers. "
)
_numbers = itertools.count()
"""Every worker makes the same pipelines in the same order, so that a number names one."""


def served(data: Indexed, *, service: str, workers: int, run: str, timeout: float = 300.0) -> "Served":
    """The same batches as `data`, prepared by the data workers of a tf.data service.

    Order, exactly once, and a start at any step are those of `data`, at any number of data workers. What the data
    holds travels to the data workers once per pipeline; arrays in memory are part of it, up to 2 GB.

    A data worker that is lost ends the training with a PeerLostError as soon as its next batch is due. When all are
    lost the trainers wait until one is started anew, and then end so.

    Args:
        data: data with random access whose reading and maps are TensorFlow alone, such as `from_arrays` of arrays in
            memory, and files that `.map(fn)` reads, if the data workers see them.
        service: `grpc://host:port` of the dispatcher, see `python -m tfdist.data_service`.
        workers: how many data workers the dispatcher has.
        run: a name that is new in every run, and the same on all workers.
        timeout: seconds to wait for the dispatcher and all data workers.

    Raises:
        DataError: data without random access, an address that is none, or no data worker.
    """
    if not isinstance(data, Indexed):
        raise DataError(
            f"served({type(data).__name__}): a data service needs data with random access, as from_arrays makes it: "
            "of a stream each data worker would run a copy. Leave the service out for it."
        )
    address_of(service)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise DataError(f"served(workers={workers!r}): the number of data workers is a whole number, 1 or more.")
    return Served(data, service, workers, run, timeout)


@contextlib.contextmanager
def service_errors() -> Iterator[None]:
    """Raises PeerLostError where batches come out of their order, which is what the loss of a data worker shows in."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if _LOST.strip() not in error.message:
            raise
        raise PeerLostError(_LOST.strip()) from error


@dataclasses.dataclass(frozen=True, eq=False)
class Served(Data):
    """`Indexed` data by way of a service.

    The service is asked for coordinated reads: in a round one data worker has one batch for each trainer. Element i of
    an endless data set belongs to data worker i % K (static sharding); of these, one after the other belong to the
    trainers in turn. So what an element is follows from i, and each data worker makes its own elements alone.
    """

    data: Indexed
    service: str
    workers: int
    run: str
    timeout: float = 300.0
    _known: dict = dataclasses.field(default_factory=dict, init=False, repr=False)

    @property
    def examples(self) -> int:
        return self.data.examples

    @property
    def element_spec(self):
        return self.data.element_spec

    def identity(self):
        return self.data.identity() | {"data workers": self.workers, "data service run": self.run}

    def with_ids(self) -> "Served":
        return dataclasses.replace(self, data=self.data.with_ids())

    def steps_per_epoch(self, batch_size, drop_remainder=False) -> int:
        return self.data.steps_per_epoch(batch_size, drop_remainder)

    def worker_batches(self, batch_size, share, *, first_step=0, first_epoch=0, drop_remainder=False, repeat=False):
        plan = self.data.plan(batch_size, drop_remainder)
        first = first_step + first_epoch * plan.steps
        dataset_id, spec = self._registered(plan, share.workers, first)
        received = _SERVICE.from_dataset_id(
            _SERVICE.ShardingPolicy.HINT,
            self.service,
            dataset_id,
            spec,
            job_name=self._new_name(),
            consumer_index=share.worker,
            num_consumers=share.workers,
        )
        batches = _checked(_by_step(received, self.workers, first), first).map(self._packed)
        if not repeat:
            batches = batches.take(plan.steps - first % plan.steps)
        return batches.prefetch(tf.data.AUTOTUNE)

    def _registered(self, plan, trainers: int, first: int) -> tuple:
        """The id and the element spec of what the data workers run, handed over once."""
        key = plan, trainers, first
        if key not in self._known:
            elements = self._elements(plan, trainers, first)
            _check_portable(elements)
            if not self._known:
                wait_for_servers(self.service, self.workers, self.timeout)
            # The graphs of two processes differ in the names of functions, and would be two data sets by themselves.
            dataset_id = _SERVICE.register_dataset(self.service, elements, dataset_id=self._new_name())
            self._known[key] = dataset_id, elements.element_spec
        return self._known[key]

    def _new_name(self) -> str:
        return f"{self.run}/{next(_numbers)}"

    def _elements(self, plan, trainers: int, first: int) -> tf.data.Dataset:
        """What the data workers run: tuples of the step, the rows, the ids and the tensors of the batch."""

        def make(element):
            turn = element // self.workers
            step = first + turn // trainers * self.workers + element % self.workers
            trainer = turn % trainers

            def bounds(rows):
                return part_start(rows, trainers, trainer), part_start(rows, trainers, trainer + 1)

            rows, ids, indices = locate(self.data.order, plan, bounds, step)
            return step, rows, ids, *tensors_of(self.data.read(indices))

        elements = tf.data.Dataset.range(tf.int64.max).shard(_HINT, _HINT)
        return elements.map(make, tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)

    def _packed(self, rows, ids, *tensors):
        specs = tensors_of(self.element_spec)
        shaped = [tf.ensure_shape(tensor, spec.shape) for tensor, spec in zip(tensors, specs)]
        return rows, ids, packed_as(self.element_spec, shaped)


def _by_step(received: tf.data.Dataset, workers: int, first: int) -> tf.data.Dataset:
    """The elements by their step. In each round of all data workers they come in an order that nobody states."""
    if workers == 1:
        return received

    def sort(*columns):
        window = tf.data.Dataset.zip(columns)
        steps = tf.data.Dataset.range(first, first + workers)
        return steps.flat_map(lambda due: window.filter(lambda step, *_: step % workers == due % workers))

    return received.window(workers, drop_remainder=True).flat_map(sort)


def _checked(elements: tf.data.Dataset, first: int) -> tf.data.Dataset:
    """The elements without their steps, which are one after the other, or an error."""

    def check(due, element):
        step, *rest = element
        with tf.control_dependencies([tf.debugging.assert_equal(step, due, _LOST)]):
            return tuple(tf.nest.map_structure(tf.identity, rest))

    return elements.enumerate(first).map(check)


def _check_portable(elements: tf.data.Dataset) -> None:
    try:
        graph = graph_of(elements)
    except DataError:
        raise DataError(
            "The data holds more than 2 GB in memory, which do not fit in what travels to a data worker. Leave the "
            "service out, or keep the data in files that `.map(fn)` reads."
        ) from None
    if operations(graph) & _PYTHON:
        raise DataError(
            "The data is read by Python code (a memory map, TFDS, TFRecords or a numpy_function), which does not "
            "travel to the data workers. Leave the service out, or take from_arrays of paths and read the files with "
            "TensorFlow in `.map(fn)`."
        )
