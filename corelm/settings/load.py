"""Putting settings together, and remembering where each value came from."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from corelm.errors import ConfigurationError
from corelm.settings.core import Bootstrap, Settings
from corelm.settings.environment import Environment, check_variables
from corelm.settings.fields import SettingField, compose, fields_of, plain, plugin_models
from corelm.settings.file import read_file
from corelm.settings.flags import check_flags, read_flags
from corelm.suggestions import did_you_mean

if TYPE_CHECKING:
    from corelm.plugins import PluginHost

BootstrapT = TypeVar("BootstrapT", bound=Bootstrap)
Values = dict[str, tuple[Any, str]]
"""By key: the value, and where it came from."""
logger = logging.getLogger(__name__)


def bootstrap(argv: Sequence[str] = (), overrides: Mapping[str, Any] | None = None) -> Bootstrap:
    """What must be known before plugins are loaded. Everything else is ignored here. Raises `ConfigurationError`."""
    table = fields_of(Bootstrap)
    flags = read_flags(Bootstrap, [word for word in argv if word not in ("-h", "--help")], ignore_unknown=True)
    return _validated(Bootstrap, table, _gather(Bootstrap, table, flags, overrides or {}))


def load_settings(host: "PluginHost", argv: Sequence[str] = (), overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of the core and of every loaded plugin.

    `overrides` (nested by plugin) win over flags, flags over variables, variables over the file, the file over
    defaults. Raises `ConfigurationError` with one line per problem.
    """
    model = compose(host.settings_models())
    table = fields_of(model)
    absent = [plugin.name for plugin in host.plugins if plugin.failure or plugin.skipped]
    check_flags(table, argv)
    check_variables(table, absent)
    values = _gather(model, table, read_flags(model, argv), overrides or {}, absent, strict=True)
    settings = _validated(model, table, values)
    for key, (_, source) in values.items():
        settings._sources[key] = source
    for field in table:
        if field.group and getattr(settings, field.group) is None and field.info.is_required():
            settings._unset.setdefault(field.group, []).append(_must_be_set(field))
    return settings


def sources(settings: Settings) -> dict[str, tuple[Any, str]]:
    """Every effective value (plain, with secrets masked) and where it came from, by key."""
    effective = {}
    for field in fields_of(type(settings)):
        owner = getattr(settings, field.group) if field.group else settings
        value = None if owner is None else plain(getattr(owner, field.name))
        effective[field.key] = (value, settings._sources.get(field.key, "default"))
    return effective


def _gather(
    model: type[Bootstrap],
    table: Sequence[SettingField],
    flags: Mapping[str, Any],
    overrides: Mapping[str, Any],
    absent_plugins: Sequence[str] = (),
    *,
    strict: bool = False,
) -> Values:
    """Read every source, the weakest first. If `strict`, unknown keys of the file and of `overrides` are errors."""
    fields = {field.key: field for field in table}
    environment, _ = _flatten(Environment(model)(), fields)
    flagged, _ = _flatten(flags, fields)
    overridden, strange = _flatten(overrides, fields)
    problems = [f"unknown setting {key!r}{did_you_mean(key, fields)}" for key in strange]
    given = {
        **{key: (value, f"variable {fields[key].variable}") for key, value in environment.items()},
        **{key: (value, f"flag {fields[key].flag}") for key, value in flagged.items()},
        **{key: (value, f"keyword {key}") for key, value in overridden.items()},
    }
    path = _validated(Bootstrap, table, {key: given[key] for key in given if key == "config"}).config
    tree, name = read_file(path)
    filed, strange = _flatten(tree, fields)
    for key in [*strange, *(["config"] if "config" in filed else [])]:
        if key.split(".")[0] in absent_plugins:
            logger.warning("%r in %s is ignored: plugin %r is not loaded", key, name, key.split(".")[0])
        else:
            problems.append(f"unknown key {key!r} in {name}{did_you_mean(key, fields.keys() - {'config'})}")
    if problems and strict:
        raise ConfigurationError("\n".join(problems))
    return {key: (value, f"key {key} in {name}") for key, value in filed.items()} | given


def _flatten(tree: Mapping[str, Any], fields: Mapping[str, SettingField]) -> tuple[dict[str, Any], list[str]]:
    """Values by key, and the keys that are no setting."""
    groups = {field.group for field in fields.values() if field.group}
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in tree.items():
        nested = isinstance(value, Mapping) and name not in fields
        pairs = {f"{name}.{inner}": item for inner, item in value.items()} if nested else {name: value}
        for key, item in pairs.items():
            if key in fields:
                known[key] = item
            elif key not in groups or item:
                unknown.append(key)
    return known, unknown


def _validated(model: type[BootstrapT], table: Sequence[SettingField], values: Values) -> BootstrapT:
    tree: dict[str, Any] = {
        name: {}
        for name, plugin in plugin_models(model).items()
        if not any(info.is_required() for info in plugin.model_fields.values())
    }
    for key, (value, _) in values.items():
        group, _, name = key.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = value
    try:
        return model(**tree)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explain(error, table, values))) from error


def _explain(error: ValidationError, table: Sequence[SettingField], values: Values) -> list[str]:
    fields = {field.key: field for field in table}
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        key = next((key for key in _prefixes(problem["loc"]) if key in fields), None)
        message = problem["msg"][0].lower() + problem["msg"][1:]
        if key is None:
            lines.append(f"settings of {'.'.join(map(str, problem['loc']))}: {message}")
        elif key in values:
            value, source = values[key]
            shown = "'**********'" if fields[key].secret else repr(plain(value))
            lines.append(f"{source}: {message}, not {shown}")
        else:
            lines.append(_must_be_set(fields[key]))
    return lines


def _prefixes(location: tuple[int | str, ...]) -> list[str]:
    parts = [str(part) for part in location]
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def _must_be_set(field: SettingField) -> str:
    return f"{field.key} must be set: flag {field.flag}, variable {field.variable}, or the settings file"
