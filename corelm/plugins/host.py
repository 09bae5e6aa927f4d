"""The plugin host: which plugins there are, what they offer, and what was selected."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import importlib_metadata
import msgspec
from pydantic import BaseModel

from corelm.contracts.diagnosis import Finding
from corelm.contracts.model import ResolvedModel
from corelm.errors import ConfigurationError, ModelLoadError, PluginError, StartupError, describe
from corelm.plugins.diagnosis import diagnose
from corelm.plugins.extensions import AddedHook
from corelm.plugins.factories import create
from corelm.plugins.loading import LoadedPlugin, OpenedPlugin, load_plugin, new_manager, open_plugin
from corelm.plugins.records import KINDS, PRODUCTS, BrokenPluginError, Kind, PluginRecord, Registration, explain_absent
from corelm.plugins.variables import VariableOwners
from corelm.suggestions import did_you_mean

GROUP = "corelm"
AUTO_EXECUTORS = ("gpu", "cpu")
AUTO_GRAMMAR = "llguidance"
logger = logging.getLogger(__name__)


class PluginHost:
    """Everything that installed plugins offer. Installing a plugin never activates it: selection is by name."""

    def __init__(self, *, trace: bool = False) -> None:
        self.plugins: list[PluginRecord] = []
        self.registrations: dict[Kind, dict[str, Registration]] = {kind: {} for kind in KINDS}
        self._conflicts: dict[tuple[Kind, str], str] = {}
        self._variables = VariableOwners()
        self._trace = trace
        self._manager = new_manager(trace=trace)
        self._hooks: list[AddedHook] = []

    @classmethod
    def load(
        cls, allow: Sequence[str] | None = None, block: Sequence[str] = (), *, trace: bool = False
    ) -> "PluginHost":
        """Load every installed plugin that `allow` (None: all) names and `block` does not.

        A plugin that fails is logged and left out. If `trace`, every call of a hook is written to stderr. Raises
        `ConfigurationError` if a list names no plugin.
        """
        entries = sorted(importlib_metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
        counts = Counter(entry.name for entry in entries)
        _check_list("plugins", allow or (), counts)
        _check_list("block_plugins", block, counts)
        host = cls(trace=trace)
        opened = []
        for entry in entries:
            record = _record(entry)
            if entry.name in block:
                host.plugins.append(msgspec.structs.replace(record, skipped="blocked by block_plugins"))
            elif allow is not None and entry.name not in allow:
                host.plugins.append(msgspec.structs.replace(record, skipped="not named by plugins"))
            elif counts[entry.name] > 1:
                owners = ", ".join(str(_record(other)) for other in entries if other.name == entry.name)
                host._refuse(record, f"several distributions use this plugin name, remove all but one: {owners}")
            else:
                opened += host._open(entry, record)
        # Whose hook it is comes first: nobody can keep its own part from loading by taking a name of it.
        for plugin in sorted(opened, key=lambda plugin: not plugin.hooks):
            host._load(plugin)
        host.plugins.sort(key=lambda plugin: (plugin.name, plugin.distribution))
        return host

    def _open(self, entry: importlib_metadata.EntryPoint, record: PluginRecord) -> list[OpenedPlugin]:
        """The plugin, or nothing if it failed."""
        try:
            plugin = open_plugin(entry, record, new_manager(trace=self._trace), self.plugins, self._hooks)
        except BrokenPluginError as error:
            self._refuse(record, str(error))
            return []
        self._hooks += plugin.hooks
        return [plugin]

    def _load(self, opened: OpenedPlugin) -> None:
        try:
            plugin = load_plugin(opened, new_manager(trace=self._trace), self._hooks)
            self._check_conflicts(plugin)
        except BrokenPluginError as error:
            self._refuse(opened.record, str(error))
            return
        self._manager.register(plugin.module, name=plugin.record.name)
        for registration in plugin.registrations:
            self.registrations[registration.kind][registration.name] = registration
        for hook, extension in plugin.extensions:
            hook.extensions[extension.name] = extension
        self.plugins.append(plugin.record)

    def _refuse(self, record: PluginRecord, failure: str) -> None:
        self.plugins.append(msgspec.structs.replace(record, failure=failure))
        logger.warning("%s is not loaded: %s", record, failure)

    def _check_conflicts(self, plugin: LoadedPlugin) -> None:
        if self._manager.is_registered(plugin.module):
            raise BrokenPluginError("another plugin name stands for the same module")
        for registration in plugin.registrations:
            key = (registration.kind, registration.name)
            other = self.registrations[registration.kind].get(registration.name)
            if other is not None:
                conflict = f"{key[0]} {key[1]!r} is registered by both {other.plugin} and {plugin.record}"
                self._conflicts[key] = conflict
                raise BrokenPluginError(conflict)
        for hook, extension in plugin.extensions:
            hook.check(extension)
        self._variables.claim(plugin.registrations)

    def settings_models(self) -> dict[str, type[BaseModel]]:
        """The settings model of every registration that has one, by the registration's name."""
        offered = (registration for kind in KINDS for registration in self.registrations[kind].values())
        return {offer.name: offer.settings for offer in offered if offer.settings is not None}

    def summaries(self) -> dict[str, str]:
        """What each thing that `PluginRecord.provides` names is, in a line."""
        registered = {
            f"{kind}:{name}": offer.summary for kind in KINDS for name, offer in self.registrations[kind].items()
        }
        extensions = [one for hook in self._hooks for one in hook.extensions.values()]
        return registered | {f"{one.hook}:{one.name}": one.summary for one in extensions}

    def select(self, kind: Kind, name: str) -> Registration:
        """The registration that the user asked for. Raises `PluginError` if there is none, or more than one.

        The executor ``auto`` is the first of gpu and cpu that this machine can run; the grammar ``auto`` is llguidance,
        or the only one.
        """
        if kind == "grammar" and name == "auto":
            return self._select_grammar()
        if kind == "executor" and name == "auto":
            return self._select_executor()
        if (kind, name) in self._conflicts:
            raise PluginError(f"{self._conflicts[kind, name]}; name one of the two in CORELM_BLOCK_PLUGINS")
        available = self.registrations[kind]
        if name not in available:
            raise PluginError(f"no {kind} named {name!r}{did_you_mean(name, available)}{self._explain_absence(kind)}")
        return available[name]

    def has_grammar(self, name: str) -> bool:
        """Whether there is a grammar compiler to select: ``auto`` does without one where this machine can run none."""
        return name != "auto" or bool(self._able_grammars())

    def _able_grammars(self) -> dict[str, Registration]:
        return {name: one for name, one in self.registrations["grammar"].items() if one.obstacle() is None}

    def _select_grammar(self) -> Registration:
        able = self._able_grammars()
        if AUTO_GRAMMAR in able:
            return able[AUTO_GRAMMAR]
        if len(able) == 1:
            return next(iter(able.values()))
        raise PluginError(f"no grammar could be chosen automatically{self._explain_absence('grammar')}")

    def _select_executor(self) -> Registration:
        available = self.registrations["executor"]
        passed_over: list[str] = []
        for name in AUTO_EXECUTORS:
            if name not in available:
                continue
            obstacle = available[name].obstacle()
            if obstacle is None:
                for reason in passed_over:
                    logger.info("executor %s; using %s", reason, name)
                return self.select("executor", name)
            passed_over.append(f"{name!r} cannot run here: {obstacle}")
        others = [name for name in available if name not in AUTO_EXECUTORS]
        if len(others) == 1:
            return self.select("executor", others[0])
        reasons = "".join(f"; {reason}" for reason in passed_over)
        raise PluginError(f"no executor could be chosen automatically{reasons}{self._explain_absence('executor')}")

    def _explain_absence(self, kind: Kind) -> str:
        """Clauses for an error message: what there is, and which plugins might have offered more."""
        clauses = [f"available: {', '.join(sorted(self.registrations[kind])) or 'none'}"]
        clauses += explain_absent(self.plugins)
        return "".join(f"; {clause}" for clause in clauses)

    def create(self, registration: Registration, context: Any) -> Any:
        """What the factory makes. Raises a `StartupError` of its own, or `PluginError`."""
        return create(registration, context, PRODUCTS[registration.kind])

    def resolve_model(self, name: str) -> ResolvedModel:
        """Ask the plugins for the files of a model. Raises `ModelLoadError` if none knows it."""
        for plugin, ask in self._implementations("corelm_resolve_model"):
            try:
                resolved: ResolvedModel | None = ask(name=name)
            except StartupError:
                raise
            except (Exception, SystemExit) as error:
                raise PluginError(f"{plugin} could not look up model {name!r}: {describe(error)}") from error
            if resolved is not None:
                return resolved
        raise ModelLoadError(
            f"no plugin knows a model named {name!r}; give a directory with config.json, a .gguf file, "
            "or install the plugin that provides it (corelm plugins lists what is installed)"
        )

    def diagnose(self, settings: Mapping[str, BaseModel]) -> list[tuple[PluginRecord, list[Finding]]]:
        """What plugins say of this machine, each told those of `settings` (by registration) that are its own."""
        offers = [offer for kind in KINDS for offer in self.registrations[kind].values() if offer.settings]
        diagnosed = []
        for plugin, ask in self._implementations("corelm_diagnose"):
            names = {offer.name for offer in offers if offer.plugin == plugin} & settings.keys()
            own = {name: settings[name] for name in names}
            diagnosed.append((plugin, diagnose(partial(ask, settings=own))))
        return sorted(diagnosed, key=lambda one: one[0].name)

    def _implementations(self, hook: str) -> Iterator[tuple[PluginRecord, Callable[..., Any]]]:
        """The plugins that implement a hook, in the order in which pluggy calls them, each with a call of it alone."""
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            others = [other for other in self._manager.get_plugins() if other is not implementation.plugin]
            record = next(record for record in self.plugins if record.name == implementation.plugin_name)
            yield record, self._manager.subset_hook_caller(hook, remove_plugins=others)


def _record(entry: importlib_metadata.EntryPoint) -> PluginRecord:
    try:
        name, version = (entry.dist.name, entry.dist.version) if entry.dist else (None, None)
    except importlib_metadata.MetadataNotFound:  # what an interrupted installation leaves
        name, version = None, None
    return PluginRecord(name=entry.name, distribution=name or "unknown distribution", version=version or "")


def _check_list(setting: str, names: Sequence[str], installed: Iterable[str]) -> None:
    for name in names:
        if name not in installed:
            raise ConfigurationError(
                f"{setting}: no plugin named {name!r} is installed{did_you_mean(name, installed)}; "
                f"installed: {', '.join(sorted(installed)) or 'none'}"
            )
