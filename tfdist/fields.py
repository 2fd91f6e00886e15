"""Fields of dataclasses that know their own rule, so that the classes check themselves."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable

from tfdist.errors import ConfigError


def setting(rule: str, allows: Callable[..., bool] = lambda _: True, default: typing.Any = dataclasses.MISSING):
    """A field whose value has the annotated type and passes `allows`; `rule` says both in words."""
    return dataclasses.field(default=default, metadata={"rule": rule, "allows": allows})


def choice(names: Iterable[str], default: str):
    """A field whose value is one of `names`."""
    return dataclasses.field(default=default, metadata={"names": tuple(names)})


def check_fields(instance, path: str = ""):
    """Checks every `setting` and `choice` of a dataclass instance; `path` stands before their names in messages.

    Raises: ConfigError with the value, the rule and the remedy.
    """
    for field in dataclasses.fields(instance):
        value, rule = getattr(instance, field.name), field.metadata
        if "names" in rule and value not in rule["names"]:
            raise ConfigError(f"{path}{field.name}={value!r}: {nearest(value, rule['names'])}")
        if "rule" in rule and not (_is_a(value, field.type) and rule["allows"](value)):
            raise ConfigError(f"{path}{field.name}={value!r}: {rule['rule']}")


def nearest(name, known: Iterable[str]) -> str:
    """The remedy for an unknown name: the known one that is most like it; all of them where they are few."""
    known = list(known)
    close = difflib.get_close_matches(str(name).lower(), known, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return (guess + (f"It is one of {', '.join(known)}." if not close or len(known) <= 5 else "")).strip()


def _is_a(value, kind) -> bool:
    """Whether the value is of the annotated kind; whole numbers are floats too, booleans are no numbers."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)
