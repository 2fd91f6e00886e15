"""What the ledgers of a training say, for people to read."""

import dataclasses
import pathlib

from tfdist.errors import DataError
from tfdist.ledger.book import read_book
from tfdist.ledger.tally import EpochTally, Found, Gap, tally

_ROW = "{:>6} {:>7} {:>8} {:>11} {:>11} {:>11} {:>9}"
_HEAD = _ROW.format("epoch", "worker", "steps", "rows", "seen once", "twice, more", "missing")


@dataclasses.dataclass(frozen=True)
class Report:
    """The count of every recorded epoch."""

    epochs: tuple[EpochTally, ...]

    @property
    def exactly_once(self) -> bool:
        """Whether each example was trained on exactly once in each epoch, but for those dropped on purpose.

        Examples that an epoch lacks do not count before it is over, nor where the ledger begins in the middle of it.
        """
        return all(epoch.exactly_once for epoch in self.epochs)

    @property
    def faults(self) -> list[str]:
        """A line for each epoch and kind of fault."""
        return [f"epoch {epoch.epoch}: {fault}" for epoch in self.epochs for fault in _faults(epoch)]

    def __str__(self):
        """A table with a line for each epoch and each of its workers, and the verdict."""
        rows = [row for epoch in self.epochs for row in _rows(epoch)]
        unknown = [_UNKNOWN] if any(not epoch.known for epoch in self.epochs) else []
        verdict = "Exactly once." if self.exactly_once else "Not exactly once:"
        return "\n".join([_HEAD, *rows, "", *unknown, verdict, *(f"  {fault}" for fault in self.faults)])


_UNKNOWN = (
    "The number of examples is not known: those of all epochs together are taken for all there are, and examples of\n"
    "equal contents for one."
)


def read_report(workdir) -> Report:
    """Reads and counts the ledgers in `workdir/ledger`, or in `workdir` itself.

    Raises: DataError if there are none, they have no step yet, are damaged, or contradict each other.
    """
    inner = pathlib.Path(workdir) / "ledger"
    folder = inner if inner.is_dir() else pathlib.Path(workdir)
    epochs = tally(read_book(folder))
    if not epochs:
        raise DataError(f"{folder}: no ledger in it has a step yet. Train for some steps first.")
    return Report(tuple(epochs))


def _rows(epoch: EpochTally):
    more, missing = epoch.more.count, epoch.missing.count
    whole = _ROW.format(epoch.epoch, "all", epoch.steps, epoch.rows, epoch.once, more, missing)
    yield "  ".join([whole, *_remarks(epoch)])
    for own in epoch.workers:
        yield _ROW.format("", own.worker, own.steps, own.rows, own.once, own.more, "").rstrip()


def _remarks(epoch: EpochTally):
    if not epoch.over:
        yield "not finished"
    if not epoch.begun and epoch.missing.count:
        yield "begun before the ledger"
    if epoch.dropped and epoch.over:
        yield f"{epoch.dropped} dropped on purpose"


def _faults(epoch: EpochTally):
    if epoch.more.count:
        yield f"{_examples(epoch.more)} seen twice or more"
    if epoch.lacks:
        dropped = f", {epoch.dropped} of them dropped on purpose" if epoch.dropped else ""
        yield f"{_examples(epoch.missing)} missing{dropped}"
    if epoch.foreign.count:
        yield f"{_examples(epoch.foreign)} seen that the data of {epoch.examples} examples does not have"
    for gap in epoch.gaps:
        yield f"worker {gap.worker} has not recorded {_steps(gap)}; the files of all workers belong into one folder"


def _steps(gap: Gap):
    last = gap.stop - 1
    if gap.steps == 1:
        return f"step {last}"
    some = "" if gap.steps == gap.stop - gap.first_step else f"{gap.steps} of the "
    return f"{some}steps {gap.first_step} to {last}"


def _examples(found: Found):
    ids = ", ".join(map(str, found.first)) + (", ..." if found.count > len(found.first) else "")
    return f"{found.count} example{'s' if found.count > 1 else ''} (id {ids})"
