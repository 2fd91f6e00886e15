"""The state of callbacks, by which each finds its own again."""

import collections
import logging
from typing import Any

from tfdist.compat.callbacks import restored, state_names
from tfdist.errors import CheckpointError
from tfdist.snapshot import tree as trees

_log = logging.getLogger(__name__)


def take_callbacks(callbacks: list) -> dict[str, Any]:
    """The states of the callbacks that have one, by name: copies, as a tree.

    A callback that offers `get_state()` and `set_state(state)` is asked; of Keras's own, and of classes derived from
    them, it is known what their state is.

    Raises: CheckpointError if `get_state` returns what cannot be saved; see `tfdist.snapshot.tree`.
    """
    states = {name: _state_of(name, callback) for name, callback in _named(callbacks)}
    return {name: state for name, state in states.items() if state is not None}


def put_callbacks(callbacks: list, states: dict[str, Any], *, tell: bool = True) -> None:
    """Gives each callback its state of then; call it after `on_train_begin`, where Keras's callbacks start anew.

    A callback that was not there then keeps the state that it has; a state whose callback is gone is left out. Both
    are told, if `tell` is true: on other workers than the chief those that write are not there.
    """
    named = dict(_named(callbacks))
    for name in named.keys() & states.keys():
        _set_state(named[name], states[name])
    if not tell:
        return
    gone = sorted(states.keys() - named.keys())
    if gone:
        _log.warning("The checkpoint has the state of callbacks that are not there now: %s.", ", ".join(gone))
    new = sorted(name for name in named.keys() - states.keys() if _has_state(named[name]))
    if new:
        _log.warning("The checkpoint has no state of these callbacks, which start anew: %s.", ", ".join(new))


def _named(callbacks: list) -> list[tuple[str, Any]]:
    """Each callback with its class, what it watches, and how many alike are before it."""
    seen: collections.Counter = collections.Counter()
    named = []
    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        kind = type(callback).__qualname__ + (f" of {monitor}" if isinstance(monitor, str) else "")
        seen[kind] += 1
        named.append((kind if seen[kind] == 1 else f"{kind} ({seen[kind]})", callback))
    return named


def _offers_state(callback) -> bool:
    return callable(getattr(callback, "get_state", None)) and callable(getattr(callback, "set_state", None))


def _has_state(callback) -> bool:
    return _offers_state(callback) or bool(state_names(callback))


def _state_of(name: str, callback):
    if _offers_state(callback):
        text, arrays = _encoded(name, _asked(name, callback))
        return trees.decode(text, lambda array: arrays[array].copy())
    names = state_names(callback)
    if not names:
        return None
    state = {attribute: getattr(callback, attribute) for attribute in names if hasattr(callback, attribute)}
    text, arrays = _encoded(name, state)
    return trees.decode(text, arrays.__getitem__)  # Keras does not change its arrays, which may be all weights


def _asked(name: str, callback):
    try:
        return callback.get_state()
    except Exception as error:
        raise CheckpointError(f"The callback {name} cannot be saved: its get_state raises {error!r}.") from error


def _encoded(name: str, state):
    try:
        return trees.encode(state)
    except CheckpointError as error:
        raise CheckpointError(f"In the state of the callback {name}: {error}") from None


def _set_state(callback, state) -> None:
    if _offers_state(callback):
        callback.set_state(state)
        return
    for attribute in state_names(callback):
        if attribute in state:
            setattr(callback, attribute, state[attribute])
    restored(callback)
