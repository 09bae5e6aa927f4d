"""``corelm doctor``: what runs here and why. Takes the flags of ``corelm run``; loads no model."""

import os
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from corelm import __version__
from corelm.api import API_VERSION
from corelm.cli.configuration import load_plugins, wants_help
from corelm.contracts.diagnosis import Finding, FindingLevel
from corelm.errors import ConfigurationError, StartupError
from corelm.plugins import Kind, PluginHost
from corelm.settings import Settings, load_settings, sources


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one thing."""

    name: str
    findings: list[Finding]


def main(argv: Sequence[str]) -> int:
    """Print a line for each finding, or with ``--json`` a list of sections. Returns 1 if there is a problem."""
    if wants_help(argv, "doctor [--json]"):
        return 0
    sections = list(_examine([word for word in argv if word != "--json"]))
    counts = Counter(finding.level for section in sections for finding in section.findings)
    if "--json" in argv:
        print(msgspec.json.encode(sections).decode())
    else:
        _print(sections)
        print(", ".join(f"{counts[level]} {level}" for level in get_args(FindingLevel)))
    return 1 if counts["problem"] else 0


def _examine(flags: Sequence[str]) -> Iterator[Section]:
    host = load_plugins(flags)
    yield Section(name=f"corelm {__version__}", findings=list(_basis()))
    yield Section(name="plugins", findings=list(_plugins(host)))
    try:
        settings = load_settings(host, flags)
    except ConfigurationError as error:
        yield Section(name="settings", findings=[_problem(line) for line in str(error).splitlines()])
        own = {}
    else:
        yield Section(name="settings", findings=list(_changed(settings)))
        yield Section(name="selected", findings=list(_selected(settings, host)))
        given = {name: getattr(settings, name) for name in host.settings_models()}
        own = {name: value for name, value in given.items() if value is not None}
    for plugin, findings in host.diagnose(own):
        yield Section(name=str(plugin), findings=findings)


def _basis() -> Iterator[Finding]:
    version = ".".join(map(str, API_VERSION))
    yield _ok(f"version {version} of the contract with plugins")
    yield _ok(f"Python {platform.python_version()} on {platform.platform()}")
    cpus = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cpus
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield _ok(f"{cpus} CPUs, of which this process may use {usable}; {memory:.1f} GiB of memory")


def _plugins(host: PluginHost) -> Iterator[Finding]:
    for plugin in host.plugins:
        if plugin.failure:
            remedy = f"mend or uninstall it, or name it in CORELM_BLOCK_PLUGINS: {plugin.name}"
            yield Finding(level="problem", text=f"{plugin} is not loaded: {plugin.failure}", remedy=remedy)
        elif plugin.skipped:
            yield Finding(level="note", text=f"{plugin} is not loaded: {plugin.skipped}")
        else:
            yield _ok(f"{plugin} is loaded")


def _changed(settings: Settings) -> Iterator[Finding]:
    """Names only: ``corelm config`` shows values."""
    changed = {key: source for key, (_, source) in sources(settings).items() if source != "default"}
    for key, source in changed.items():
        yield Finding(level="note", text=f"{key} is set by {source}")
    if not changed:
        yield _ok("all have their defaults")


def _selected(settings: Settings, host: PluginHost) -> Iterator[Finding]:
    """Whether what the settings name is there and can run."""
    chosen: list[tuple[Kind, str]] = [
        ("executor", settings.executor),
        ("scheduler", settings.scheduler),
        ("tokenizer", settings.tokenizer),
        ("frontend", settings.frontend),
        *(("observer", name) for name in settings.observers),
        *(("logits_processor", name) for name in settings.logits_processors),
    ]
    if host.has_grammar(settings.grammar):
        chosen.append(("grammar", settings.grammar))
    for kind, name in chosen:
        try:
            registration = host.select(kind, name)
            settings.plugin(registration.name)
        except StartupError as error:
            yield _problem(str(error))
            continue
        obstacle = registration.obstacle()
        yield _problem(f"{registration} cannot run here: {obstacle}") if obstacle else _ok(str(registration))


def _ok(text: str) -> Finding:
    return Finding(level="ok", text=text)


def _problem(text: str) -> Finding:
    return Finding(level="problem", text=text)


def _print(sections: Sequence[Section]) -> None:
    for section in sections:
        print(section.name)
        for finding in section.findings:
            print(f"  {finding.level:<7}  {finding.text}")
            for line in (finding.remedy or "").splitlines():
                print(f"           {line}")
