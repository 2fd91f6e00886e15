"""A callback while Python's threads can still work.

Callbacks of `atexit` come too late for readers that use executors: `concurrent.futures` takes no work any more by then.
`threading._register_atexit` is what `concurrent.futures` itself uses; the callback registered last runs first. Where a
release of Python lacks it, `atexit` is the next best.
"""

import atexit
import concurrent.futures.thread  # noqa: F401  its own callback must be registered before ours
import threading
from collections.abc import Callable


def at_process_end(callback: Callable[[], None]) -> None:
    """Has `callback()` called when the process ends in an orderly way, before executors are shut down."""
    getattr(threading, "_register_atexit", atexit.register)(callback)
