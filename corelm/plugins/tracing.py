"""Writes down every call of a hook, while plugins are loaded and models looked up."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pluggy


def trace_hooks(manager: pluggy.PluginManager) -> None:
    """Write a line to stderr after each hook call of `manager`: the hook, who implements it, and what came of it.

    Hooks that nobody implements are left out.
    """

    def before(hook: str, implementations: Sequence[pluggy.HookImpl], arguments: Mapping[str, Any]) -> None:
        """Only what came of a call is written."""

    def after(
        outcome: pluggy.Result[Any],
        hook: str,
        implementations: Sequence[pluggy.HookImpl],
        arguments: Mapping[str, Any],
    ) -> None:
        if not implementations:
            return
        # pluggy keeps implementations in the reverse of the order in which it calls them.
        names = ", ".join(implementation.plugin_name for implementation in reversed(implementations))
        given = ", ".join(_argument(name, value) for name, value in arguments.items())
        result = f"raised {outcome.exception!r}" if outcome.exception else f"-> {outcome.get_result()!r}"
        sys.stderr.write(f"corelm: hook {hook}({given}) of {names} {result}\n")

    manager.add_hookcall_monitoring(before, after)


def _argument(name: str, value: Any) -> str:
    return name if callable(value) else f"{name}={value!r}"
