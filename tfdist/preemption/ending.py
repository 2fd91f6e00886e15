"""Words from threads that may not wait, and the end of the process from any of them."""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

_LAST_WORD_SECONDS = 1.0

_log = logging.getLogger(__name__)


def say(message: str, then: Callable[[], None] | None = None) -> threading.Thread:
    """Logs `message` and calls `then()`, in a thread that is returned.

    A log can be stuck, or its lock be held by a main thread that is; who has to hear signals may not wait for it.
    """
    thread = threading.Thread(target=_say, args=(message, then), name="tfdist-say", daemon=True)
    with contextlib.suppress(RuntimeError):  # the interpreter is ending, and starts no threads any more
        thread.start()
    return thread


def end_process(code: int, message: str, last_word: Callable[[], None] | None = None) -> NoReturn:
    """Ends the process with `code` once it has said so, or after a second; no `finally` and no `atexit` runs."""
    thread = say(message, last_word)
    if thread.ident:
        thread.join(_LAST_WORD_SECONDS)
    os._exit(code)


def _say(message, then):
    try:
        _log.warning(message)
        if then:
            then()
    except Exception:
        _log.exception("The last word failed.")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
