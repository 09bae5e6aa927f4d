"""What is on its way out of the contract: everything deprecated stands in this one table."""

import warnings
from dataclasses import dataclass
from typing import Any

import importlib_metadata

KEPT_FOR = 2
"""Minor releases for which something that is deprecated still works."""


class CorelmDeprecationWarning(FutureWarning):
    """A plugin uses something that will be removed. Shown to whoever runs corelm, who can tell the plugin's author."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deprecation:
    """Something that still works and will not for ever. Versions are those of the contract, `API_VERSION`."""

    since: tuple[int, int]
    removed_in: tuple[int, int]
    instead: str
    """What to use now; for a name of `corelm.api`, its new name there."""


DEPRECATIONS: dict[str, Deprecation] = {}
"""By what a plugin's author wrote, such as ``corelm.api.OldName``."""


def warn_deprecated(name: str, module: str) -> None:
    """Warn that the plugin to which `module` belongs uses `name`, a key of `DEPRECATIONS`."""
    deprecation = DEPRECATIONS[name]
    since, removed = (".".join(map(str, version)) for version in (deprecation.since, deprecation.removed_in))
    warnings.warn(
        f"{_owner(module)} uses {name}, which is deprecated since API {since} and will be removed in {removed}; "
        f"use {deprecation.instead}",
        CorelmDeprecationWarning,
        stacklevel=2,
    )


def deprecated_name(api: Any, name: str, module: str) -> Any:
    """What `name` of the module `api` means now, with a warning. Raises `AttributeError` if it never meant anything."""
    key = f"{api.__name__}.{name}"
    if key not in DEPRECATIONS:
        raise AttributeError(f"module {api.__name__!r} has no attribute {name!r}")
    warn_deprecated(key, module)
    return getattr(api, DEPRECATIONS[key].instead)


def _owner(module: str) -> str:
    """The plugin whose package `module` lies in, with its distribution; else the module."""
    package = module.partition(".")[0]
    for entry in importlib_metadata.entry_points(group="corelm"):
        if entry.module.partition(".")[0] == package and entry.dist is not None:
            return f"plugin {entry.name!r} ({entry.dist.name} {entry.dist.version})"
    return f"module {module!r}"
