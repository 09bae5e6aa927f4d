"""Hooks that plugins add, and what other plugins registered through them."""

import inspect
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec
import pluggy

from corelm import hookspecs
from corelm.errors import PluginError
from corelm.plugins.factories import create
from corelm.plugins.records import BrokenPluginError, PluginRecord, explain_absent
from corelm.suggestions import did_you_mean

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a plugin registered through the hook of another."""

    hook: str
    name: str
    factory: Callable[[Any], Any]
    summary: str
    plugin: PluginRecord

    def __str__(self) -> str:
        return f"{self.hook} {self.name!r} of {self.plugin}"


class AddedHook:
    """A hook that a plugin added: what that plugin is given to call it, as `corelm.api.Extensions`."""

    def __init__(self, spec: Callable[..., None], owner: PluginRecord, plugins: Sequence[PluginRecord]) -> None:
        """`plugins` will hold every plugin. Raises `BrokenPluginError` if `spec` cannot be a hook of `owner`."""
        self.name = _checked_name(spec, owner)
        self.owner = owner
        self.spec = spec
        self.extensions: dict[str, Extension] = {}
        self._conflicts: dict[str, str] = {}
        self._plugins = plugins

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.extensions.keys() - self._conflicts.keys()))

    def create(self, name: str, context: Any) -> Any:
        if name in self._conflicts:
            raise PluginError(f"{self._conflicts[name]}; name one of the two in CORELM_BLOCK_PLUGINS")
        if name not in self.extensions:
            available = f"available: {', '.join(self.names) or 'none'}"
            clauses = [
                f"nothing named {name!r} is registered with {self.name}{did_you_mean(name, self.names)}",
                available,
            ]
            raise PluginError("; ".join(clauses + explain_absent(self._plugins)))
        return create(self.extensions[name], context)

    def check(self, extension: Extension) -> None:
        """Raise `BrokenPluginError` if another plugin has the name; from now on it stands for neither."""
        other = self.extensions.get(extension.name)
        if other is not None:
            conflict = f"{self.name} {extension.name!r} is registered by both {other.plugin} and {extension.plugin}"
            self._conflicts[extension.name] = conflict
            raise BrokenPluginError(conflict)

    def add_to(self, manager: pluggy.PluginManager) -> None:
        """Make the hook known to `manager`."""
        specs = ModuleType(self.name)
        setattr(specs, self.name, self.spec)
        manager.add_hookspecs(specs)

    def collect(self, manager: pluggy.PluginManager, record: PluginRecord) -> dict[str, Extension]:
        """What the plugin of `manager` registers. Raises whatever that plugin raises, and `BrokenPluginError`."""
        found: dict[str, Extension] = {}

        def register(name: str, factory: Callable[[Any], Any], *, summary: str = "") -> None:
            if not (isinstance(name, str) and NAME.fullmatch(name)):
                raise BrokenPluginError(f"{self.name} name {name!r} must match {NAME.pattern}")
            if not callable(factory):
                raise BrokenPluginError(f"the factory of {self.name} {name!r} is not callable")
            if name in found:
                raise BrokenPluginError(f"it registers {self.name} {name!r} twice")
            found[name] = Extension(hook=self.name, name=name, factory=factory, summary=summary, plugin=record)

        getattr(manager.hook, self.name)(register=register)
        return found


def _checked_name(spec: Any, owner: PluginRecord) -> str:
    prefix = f"corelm_{owner.name.replace('-', '_')}_"
    if not inspect.isfunction(spec) or not spec.__name__.startswith(prefix):
        raise BrokenPluginError(f"a hook that it adds must be a function whose name begins with {prefix}, not {spec!r}")
    if list(inspect.signature(spec).parameters) != ["register"]:
        raise BrokenPluginError(f"{spec.__name__}, a hook that it adds, must have one argument, named register")
    if hasattr(hookspecs, spec.__name__):
        raise BrokenPluginError(f"{spec.__name__}, a hook that it adds, is one of corelm's own")
    hookspecs.hookspec(spec)
    return spec.__name__
