"""Who reads what of a data set that brings no random access. Integers and words only."""

import dataclasses
import heapq
from collections.abc import Sequence

from tfdist.errors import DataError


@dataclasses.dataclass(frozen=True)
class ReadAll:
    """Every worker reads everything, because of `why`."""

    why: str
    workers: int
    generates: bool = False

    def __str__(self):
        checked = " Python code makes them: the first are compared over the workers." if self.generates else ""
        return (
            f"{self.why}: every worker reads all of the data set and keeps its own rows of each global "
            f"batch, the same batches at any number of workers.{checked} Cost: {self.workers} times the reading and "
            "mapping; where that is too much, set options.experimental_distribute.auto_shard_policy to FILE."
        )


@dataclasses.dataclass(frozen=True)
class ReadOwn:
    """Every worker reads what a function of its input context gives it."""

    workers: int

    def __str__(self):
        return (
            f"A function of the input context: each of the {self.workers} workers reads a data set of its own, and a "
            "global batch is what they have in the same step. The batches depend on the number of workers."
        )


@dataclasses.dataclass(frozen=True)
class ReadFiles:
    """Every worker reads files of its own.

    Attributes:
        names, sizes: of all files, in the data set's order; sizes in bytes.
        files: for each worker the positions of its files, in order.
        rows: for each worker its rows of a global batch.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    files: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]

    def __str__(self):
        workers = [
            f"worker {worker} {len(files)} file(s) with {_bytes(files, self.sizes):,} bytes and {rows} row(s)"
            for worker, (files, rows) in enumerate(zip(self.files, self.rows))
        ]
        return (
            f"Policy FILE: each worker reads its own of {len(self.names)} files, and has rows of a global batch of "
            f"{sum(self.rows)} in proportion to their bytes: {'; '.join(workers)}. Each file is read once an epoch. "
            "The batches depend on the number of workers."
        )


def plan_files(names: Sequence[str], sizes: Sequence[int], workers: int, batch_size: int) -> ReadFiles:
    """Deals files to workers, the largest first to whoever has fewest bytes, and the rows of a batch by bytes.

    So all workers run out at about the same step.

    Raises:
        DataError: fewer files than workers, or a worker without rows.
    """
    if len(names) < workers:
        raise DataError(
            f"Policy FILE with {len(names)} file(s) for {workers} workers: each needs one at least. Write more files, "
            "or set options.experimental_distribute.auto_shard_policy to DATA."
        )
    files = _dealt(names, sizes, workers)
    loads = [_bytes(own, sizes) for own in files]
    rows = _divided(batch_size, loads)
    if min(rows) == 0:
        worker = rows.index(0)
        raise DataError(
            f"Policy FILE: the files are too uneven. Worker {worker} of {workers} has {loads[worker]:,} of "
            f"{sum(loads):,} bytes, which makes none of the {batch_size} rows of a global batch. Cut the largest file "
            "into several, take a larger batch, or set options.experimental_distribute.auto_shard_policy to DATA."
        )
    return ReadFiles(tuple(names), tuple(sizes), files, rows)


def _dealt(names, sizes, workers: int) -> tuple[tuple[int, ...], ...]:
    """The positions of each worker's files."""
    hands: list[list[int]] = [[] for _ in range(workers)]
    loads = [(0, 0, worker) for worker in range(workers)]  # bytes, files, worker: a heap
    for file in sorted(range(len(names)), key=lambda i: (-sizes[i], names[i])):
        load, count, worker = loads[0]
        heapq.heapreplace(loads, (load + sizes[file], count + 1, worker))
        hands[worker].append(file)
    return tuple(tuple(sorted(hand)) for hand in hands)


def _divided(rows: int, loads) -> tuple[int, ...]:
    """`rows` in proportion to `loads`, by the largest remainder; the first of equals has one more."""
    total = sum(loads) or 1
    shares = [rows * load // total for load in loads]
    by_remainder = sorted(range(len(loads)), key=lambda i: -(rows * loads[i] % total))
    for worker in by_remainder[: rows - sum(shares)] if sum(loads) else ():
        shares[worker] += 1
    return tuple(shares)


def _bytes(files, sizes) -> int:
    return sum(sizes[file] for file in files)
