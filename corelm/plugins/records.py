"""What the host knows about plugins and about what they registered."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import msgspec
from pydantic import BaseModel

from corelm.contracts.executor import Executor
from corelm.contracts.frontend import Frontend
from corelm.contracts.grammar import GrammarCompiler
from corelm.contracts.logits import LogitsProcessor
from corelm.contracts.observer import Observer
from corelm.contracts.scheduling import SchedulingPolicy
from corelm.contracts.tokenizer import Tokenizer
from corelm.errors import describe

Kind = Literal["executor", "scheduler", "tokenizer", "frontend", "observer", "logits_processor", "grammar"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PRODUCTS: dict[Kind, type] = {
    "executor": Executor,
    "scheduler": SchedulingPolicy,
    "tokenizer": Tokenizer,
    "frontend": Frontend,
    "observer": Observer,
    "logits_processor": LogitsProcessor,
    "grammar": GrammarCompiler,
}
"""What the factories of each kind have to make."""


class BrokenPluginError(Exception):
    """Why a plugin cannot be used, in one line."""


class PluginRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point of the group ``corelm``, loaded or not."""

    name: str
    """Name of the entry point: what the allow-list and the block-list are about."""
    distribution: str
    version: str
    provides: tuple[str, ...] = ()
    """``kind:name`` of everything it registered, ``hook:name`` for hooks that plugins added."""
    skipped: str | None = None
    """Why it was not asked to load: the allow-list or the block-list."""
    failure: str | None = None
    """Why it could not be loaded, in one line."""

    def __str__(self) -> str:
        return f"plugin {self.name!r} ({self.distribution} {self.version})"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that users can select."""

    kind: Kind
    name: str
    factory: Callable[[Any], Any]
    settings: type[BaseModel] | None
    summary: str
    unavailable: Callable[[], str | None] | None
    plugin: PluginRecord

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.plugin}"

    def obstacle(self) -> str | None:
        """Why this machine cannot run it, or None."""
        if self.unavailable is None:
            return None
        try:
            return self.unavailable()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a check that breaks is the reason why it cannot run
            return f"its availability check failed: {describe(error)}"


def explain_absent(plugins: Iterable[PluginRecord]) -> list[str]:
    """Clauses for an error message: the plugins that are not loaded, which might have offered more."""
    plugins = list(plugins)
    clauses = [f"{plugin} is not loaded: {plugin.failure}" for plugin in plugins if plugin.failure]
    return clauses + [f"{plugin} is {plugin.skipped}" for plugin in plugins if plugin.skipped]
