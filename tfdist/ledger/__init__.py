"""Records which examples each worker trained on, and shows whether each was trained on exactly once an epoch."""

from tfdist.ledger.book import last_step
from tfdist.ledger.ledger import Ledger, next_run
from tfdist.ledger.report import Report, read_report

__all__ = ["Ledger", "Report", "last_step", "next_run", "read_report"]
