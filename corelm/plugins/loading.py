"""Loading one plugin: import it, check it, and collect what it registers. All or nothing."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import importlib_metadata
import msgspec
import pluggy
from pydantic import BaseModel, ValidationError

from corelm import hookspecs
from corelm.api import API_VERSION
from corelm.errors import describe_with_place
from corelm.plugins.extensions import AddedHook, Extension
from corelm.plugins.records import KINDS, BrokenPluginError, Kind, PluginRecord, Registration
from corelm.plugins.tracing import trace_hooks

NAME = re.compile(r"[a-z][a-z0-9_]*")


class OpenedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that was imported and fits this version of the contract."""

    module: Any
    record: PluginRecord
    hooks: tuple[AddedHook, ...]
    """What it adds for other plugins to implement."""


class LoadedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that passed every check."""

    module: Any
    record: PluginRecord
    registrations: tuple[Registration, ...]
    extensions: tuple[tuple[AddedHook, Extension], ...]


def new_manager(*, trace: bool) -> pluggy.PluginManager:
    """A pluggy manager that knows corelm's hooks. If `trace`, their calls are written to stderr."""
    manager = pluggy.PluginManager("corelm")
    manager.add_hookspecs(hookspecs)
    if trace:
        trace_hooks(manager)
    return manager


def open_plugin(
    entry: importlib_metadata.EntryPoint,
    record: PluginRecord,
    manager: pluggy.PluginManager,
    plugins: Sequence[PluginRecord],
    others: Iterable[AddedHook],
) -> OpenedPlugin:
    """Import a plugin and ask it for the hooks it adds. `plugins` will hold every plugin, `others` added hooks before.

    Raises `BrokenPluginError`, whatever the plugin does.
    """
    owners = {hook.name: hook.owner for hook in others}
    hooks: list[AddedHook] = []

    def add(spec: Callable[..., None]) -> AddedHook:
        hook = AddedHook(spec, record, plugins)
        if hook.name in owners:
            raise BrokenPluginError(f"the hook {hook.name} that it adds was already added by {owners[hook.name]}")
        owners[hook.name] = record
        hooks.append(hook)
        return hook

    with _reported():
        module = _import(entry)
        _check_api_version(module)
        _check_marks(module)
        manager.register(module, name=record.name)
        manager.hook.corelm_add_hooks(add=add)
    return OpenedPlugin(module=module, record=record, hooks=tuple(hooks))


def load_plugin(plugin: OpenedPlugin, manager: pluggy.PluginManager, hooks: Iterable[AddedHook]) -> LoadedPlugin:
    """Collect what a plugin registers, also through `hooks`. Raises `BrokenPluginError`, whatever the plugin does."""
    with _reported():
        for hook in hooks:
            hook.add_to(manager)
        manager.register(plugin.module, name=plugin.record.name)
        manager.check_pending()
        registrations = _collect(manager, plugin.record)
        extensions = [(hook, one) for hook in hooks for one in hook.collect(manager, plugin.record).values()]
    provides = (
        *(f"{one.kind}:{one.name}" for one in registrations),
        *(f"{one.hook}:{one.name}" for _, one in extensions),
    )
    record = msgspec.structs.replace(plugin.record, provides=provides)
    return LoadedPlugin(
        module=plugin.module,
        record=record,
        registrations=tuple(msgspec.structs.replace(one, plugin=record) for one in registrations),
        extensions=tuple((hook, msgspec.structs.replace(one, plugin=record)) for hook, one in extensions),
    )


@contextmanager
def _reported() -> Iterator[None]:
    """Whatever a plugin raises becomes a `BrokenPluginError`."""
    try:
        yield
    except BrokenPluginError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BrokenPluginError(describe_with_place(error)) from error


def _import(entry: importlib_metadata.EntryPoint) -> Any:
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        if error.name is None or not f"{entry.module}.".startswith(f"{error.name}."):
            raise
        raise BrokenPluginError(
            f"its entry point {entry.name} = {entry.value!r} names the module {error.name!r}, which is not installed"
        ) from error


def _check_marks(module: Any) -> None:
    """Refuse a hook that would never be called because its mark was forgotten."""
    for name in vars(module):
        unmarked = inspect.isfunction(vars(module)[name]) and not hasattr(vars(module)[name], "corelm_impl")
        if name.startswith("corelm_") and hasattr(hookspecs, name) and unmarked:
            raise BrokenPluginError(f"its function {name} is not marked with @corelm.api.hookimpl")


def _check_api_version(module: Any) -> None:
    wanted = getattr(module, "corelm_api", None)
    if wanted is None:
        return
    try:
        minimum, below = wanted
        fits = minimum <= API_VERSION < below
    except (TypeError, ValueError) as error:
        raise BrokenPluginError(f"corelm_api must be two version tuples, (minimum, below), not {wanted!r}") from error
    if not fits:
        raise BrokenPluginError(
            f"it needs corelm API >= {_version(minimum)} and < {_version(below)}, this is {_version(API_VERSION)}"
        )


def _version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _collect(manager: pluggy.PluginManager, record: PluginRecord) -> list[Registration]:
    found: dict[tuple[Kind, str], Registration] = {}
    for kind in KINDS:
        hook = getattr(manager.hook, f"corelm_register_{kind}s")
        hook(register=_register_callback(kind, record, found))
    return list(found.values())


def _register_callback(
    kind: Kind, record: PluginRecord, found: dict[tuple[Kind, str], Registration]
) -> Callable[..., None]:
    def register(
        name: str,
        factory: Callable[[Any], Any],
        *,
        settings: type[BaseModel] | None = None,
        summary: str = "",
        unavailable: Callable[[], str | None] | None = None,
    ) -> None:
        _check_registration(kind, name, factory, settings, found)
        found[kind, name] = Registration(
            kind=kind,
            name=name,
            factory=factory,
            settings=settings,
            summary=summary,
            unavailable=unavailable,
            plugin=record,
        )

    return register


def _check_registration(
    kind: Kind, name: str, factory: Any, settings: Any, found: Mapping[tuple[Kind, str], Registration]
) -> None:
    if not (isinstance(name, str) and NAME.fullmatch(name)) or name == "auto":
        raise BrokenPluginError(f"{kind} name {name!r} must match {NAME.pattern} and not be 'auto'")
    if not callable(factory):
        raise BrokenPluginError(f"the factory of {kind} {name!r} is not callable")
    if settings is not None:
        _check_settings(f"the settings of {kind} {name!r}", settings)
    if (kind, name) in found:
        raise BrokenPluginError(f"it registers {kind} {name!r} twice")


def _check_settings(what: str, settings: Any) -> None:
    if not (isinstance(settings, type) and issubclass(settings, BaseModel)):
        raise BrokenPluginError(f"{what} must be a pydantic model class")
    settings.model_rebuild()
    for field, info in settings.model_fields.items():
        if info.alias or info.validation_alias:
            raise BrokenPluginError(f"{what} have an alias for {field}: the name of a setting follows from its field's")
    try:
        settings()
    except ValidationError:
        return  # it has required fields, which are asked for when it is selected
