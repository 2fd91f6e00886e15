"""Reads an experiment's settings from a Python file with `get_config()` and from `--config.a.b=value`."""

import ast
import dataclasses
import os
import runpy
import typing
from collections.abc import Iterable, Mapping

from ml_collections import ConfigDict

from tfdist.config import Experiment, Named
from tfdist.durations import Duration, read_duration
from tfdist.errors import ConfigError
from tfdist.fields import nearest


def read_experiment(path: str, overrides: Iterable[str] = ()) -> Experiment:
    """The settings that the file's `get_config()` returns, an `ml_collections.ConfigDict`, checked and frozen.

    Args:
        path: The Python file.
        overrides: Texts `a.b=value`, the value a Python literal or a text. They set what `tfdist.config` knows,
            and of the task the arguments that the file states.

    Raises: ConfigError.
    """
    settings = _load(path)
    for override in overrides:
        _override(settings, override)
    return make_experiment(settings)


def make_experiment(settings: Mapping) -> Experiment:
    """The frozen settings of a mapping of plain values. Raises: ConfigError."""
    return _make(Experiment, settings, "")


def to_dict(experiment: Experiment) -> dict:
    """The settings as plain values that JSON can hold and that `make_experiment` reads again."""
    return _plain(experiment)


def changed_settings(before: Mapping, now: Mapping) -> list[str]:
    """The settings that two mappings of plain values have otherwise, each as `a.b: BEFORE -> NOW`."""
    old, new = _flat(before), _flat(now)
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return [f"{name}: {old.get(name)} -> {new.get(name)}" for name in names]


def _flat(settings, path=""):
    flat: dict[str, object] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {path + name: value}
    return flat


def _load(path):
    if not os.path.isfile(path):
        raise ConfigError(f"--config={path}: there is no such file. Give the path of a Python file with get_config().")
    try:
        get_config = runpy.run_path(path).get("get_config")
        config = get_config() if callable(get_config) else None
    except Exception as error:
        raise ConfigError(f"--config={path}: running it failed with {type(error).__name__}: {error}") from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(f"--config={path}: it needs a function get_config() that returns a ConfigDict. Add one.")
    return config.to_dict()


def _override(settings, override):
    name, equals, text = override.partition("=")
    *path, last = name.split(".")
    if not equals or not last:
        raise ConfigError(f"--config.{override}: an override has a name and a value. Write --config.{name}=VALUE.")
    for part in path:
        if isinstance(settings.get(part), str):
            settings[part] = {"name": settings[part]}
        settings = settings.setdefault(part, {})
        if not isinstance(settings, dict):
            raise ConfigError(f"--config.{override}: {part!r} is a single value. Leave out what follows it.")
    if path == ["task"] and last not in settings:
        raise ConfigError(f"--config.{name}: the config states no such argument; {nearest(last, settings)}")
    settings[last] = _value(text)


def _value(text):
    """A Python literal, `true`, `false` or `none` in any case, or else the text."""
    constants = {"true": True, "false": False, "none": None}
    try:
        return constants[text.lower()] if text.lower() in constants else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _make(kind, settings, path):
    """An instance of the dataclass `kind` from a mapping, whose names are checked; the values check themselves."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{path[:-1]}={settings!r}: it holds settings of its own. Write {path}NAME=VALUE.")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in settings:
        if name not in fields:
            raise ConfigError(f"{path}{name}: there is no such setting; {nearest(name, fields)}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in settings:
            raise ConfigError(f"{path}{name} is not set, and has no default. Set it in the config.")
    return kind(**{name: _read(fields[name].type, value, path + name) for name, value in settings.items()})


def _read(kind, value, path):
    """The value as the field's type wants it; what is not of that type is left to the field's own check."""
    if kind is Named:
        return _named(value, path)
    if kind is Duration:
        return _duration(value, path)
    if typing.get_origin(kind) is tuple:
        values = value if isinstance(value, (list, tuple)) else (value,)
        return tuple(_read(typing.get_args(kind)[0], v, path) for v in values)
    return _make(kind, value, f"{path}.") if dataclasses.is_dataclass(kind) else value


def _named(value, path):
    arguments = {"name": value} if isinstance(value, str) else value
    if not isinstance(arguments, Mapping) or not isinstance(arguments.get("name"), str):
        raise ConfigError(f"{path}={value!r}: it is a name, or settings one of which is the name. Set {path}.name.")
    arguments = dict(arguments)
    return Named(arguments.pop("name"), arguments)


def _duration(value, path):
    try:
        return read_duration(value)
    except ConfigError as error:
        raise ConfigError(f"{path}={error}") from None


def _plain(value):
    if isinstance(value, Named):
        return {"name": value.name, **value.arguments}
    if isinstance(value, Duration):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value
