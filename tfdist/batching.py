"""How an epoch is cut into global batches, and a global batch into parts. Integers only.

A global batch of `rows` rows is split over the replicas of all workers, and a replica's rows over its
micro-batches, as evenly as possible, in real rows and without padding. `part_start` is the one rule;
it works on Python integers and on integer tensors alike, so that the pipelines, the traced step and
the tests share it.
"""

import dataclasses

from tfdist.errors import BatchError


def part_start(rows, parts, index):
    """First row of part `index` when `rows` rows are split over `parts` parts.

    Parts differ by one row at most, cover every row once, and are in order: part `i` holds the rows
    `part_start(rows, parts, i)` up to `part_start(rows, parts, i + 1)`, exclusive.

    Args: integers, or integer tensors of one dtype. Returns: the same kind.
    """
    return (index * rows + parts - 1) // parts


def elastic_accumulation(accumulate_steps: int, workers: int, full_workers: int) -> int:
    """Micro-batches per replica where `workers` do the work of `full_workers`, with `accumulate_steps` each.

    The smallest whole multiple at which no micro-batch has more rows than it has with all workers. The global batch is
    the same, and so are its rows and their order.
    """
    return accumulate_steps * -(-full_workers // workers)


@dataclasses.dataclass(frozen=True)
class Share:
    """Which rows of every global batch a worker reads: those of its own replicas."""

    worker: int = 0
    workers: int = 1
    replicas_per_worker: int = 1

    def __post_init__(self):
        if not 0 <= self.worker < self.workers or self.replicas_per_worker < 1:
            raise BatchError(
                f"Worker {self.worker} of {self.workers} with {self.replicas_per_worker} replicas: a worker's "
                "rank is in [0, workers) and it has one replica at least. Check the cluster."
            )

    @property
    def replicas(self) -> int:
        """Replicas of all workers together."""
        return self.workers * self.replicas_per_worker

    @property
    def first_replica(self) -> int:
        """This worker's first replica, counted over all workers."""
        return self.worker * self.replicas_per_worker

    def bounds(self, rows):
        """`(start, stop)` of this worker's rows within a global batch of `rows` rows; may be empty."""
        return part_start(rows, self.workers, self.worker), part_start(rows, self.workers, self.worker + 1)

    def replica_bounds(self, own_rows, replica):
        """`(start, stop)` within the worker's `own_rows` rows for its replica `replica`, counted from 0; may be empty.

        Rows are split over the workers first and then over a worker's replicas, which need not know the other workers.
        """
        return (
            part_start(own_rows, self.replicas_per_worker, replica),
            part_start(own_rows, self.replicas_per_worker, replica + 1),
        )


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """An epoch of `examples` examples in global batches of `batch_size`, the last one partial or dropped."""

    examples: int
    batch_size: int
    drop_remainder: bool = False

    def __post_init__(self):
        if self.examples < 1:
            raise BatchError(f"The data has {self.examples} examples; training needs one at least.")
        if self.batch_size < 1:
            raise BatchError(f"batch_size={self.batch_size}: the global batch has one row at least.")
        if self.drop_remainder and self.examples < self.batch_size:
            raise BatchError(
                f"batch_size={self.batch_size} with drop_remainder drops all {self.examples} examples. Take a "
                f"batch size of at most {self.examples}, or keep the remainder."
            )

    @property
    def steps(self) -> int:
        """Global batches, that is optimizer steps, per epoch."""
        full, rest = divmod(self.examples, self.batch_size)
        return full + (rest > 0 and not self.drop_remainder)

    @property
    def dropped(self) -> int:
        """Examples of an epoch that are never trained on: 0 unless `drop_remainder`."""
        return self.examples - self.last_rows - (self.steps - 1) * self.batch_size

    @property
    def last_rows(self) -> int:
        """Rows of the last global batch."""
        return self.batch_size if self.drop_remainder else (self.examples - 1) % self.batch_size + 1

    def rows(self, step: int) -> int:
        """Rows of the global batch of step `step` of an epoch."""
        return self.last_rows if step == self.steps - 1 else self.batch_size
