"""Loading one plugin: import it, check it, and collect what it registers. All or nothing."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import importlib_metadata
import msgspec
import pluggy
from pydantic import BaseModel

from corelm import hookspecs
from corelm.api import API_VERSION
from corelm.errors import describe
from corelm.plugins.records import KINDS, Kind, PluginRecord, Registration

NAME = re.compile(r"[a-z][a-z0-9_]*")


class LoadedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that passed every check."""

    module: Any
    registrations: tuple[Registration, ...]


class BrokenPluginError(Exception):
    """Why a plugin cannot be used, in one line."""


def new_manager() -> pluggy.PluginManager:
    """A pluggy manager that knows corelm's hooks."""
    manager = pluggy.PluginManager("corelm")
    manager.add_hookspecs(hookspecs)
    return manager


def load_plugin(entry: importlib_metadata.EntryPoint, record: PluginRecord) -> LoadedPlugin:
    """Import a plugin and collect its registrations. Raises `BrokenPluginError`, whatever the plugin does."""
    try:
        module = entry.load()
        _check_api_version(module)
        manager = new_manager()
        manager.register(module)
        manager.check_pending()
        registrations = _collect(manager, record)
    except BrokenPluginError:
        raise
    except (Exception, SystemExit) as error:
        raise BrokenPluginError(describe(error)) from error
    return LoadedPlugin(module=module, registrations=registrations)


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


def _collect(manager: pluggy.PluginManager, record: PluginRecord) -> tuple[Registration, ...]:
    found: dict[tuple[Kind, str], Registration] = {}
    for kind in KINDS:
        hook = getattr(manager.hook, f"corelm_register_{kind}s")
        hook(register=_register_callback(kind, record, found))
    provides = tuple(f"{kind}:{name}" for kind, name in found)
    complete = msgspec.structs.replace(record, provides=provides)
    return tuple(msgspec.structs.replace(registration, plugin=complete) for registration in found.values())


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
    if settings is not None and not (isinstance(settings, type) and issubclass(settings, BaseModel)):
        raise BrokenPluginError(f"the settings of {kind} {name!r} must be a pydantic model class")
    if (kind, name) in found:
        raise BrokenPluginError(f"it registers {kind} {name!r} twice")
