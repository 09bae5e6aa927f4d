"""``corelm plugins check``: run the conformance suite of its kind on something that is installed."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from corelm.cli.configuration import configure, wants_help
from corelm.cli.suites import suite_for
from corelm.errors import ConfigurationError, PluginError, StartupError
from corelm.plugins import KINDS, PluginHost, Registration
from corelm.plugins.records import explain_absent
from corelm.settings import Settings
from corelm.suggestions import did_you_mean
from corelm.testing.conformance.running import CheckResult, each_check


def main(argv: Sequence[str]) -> int:
    """Print a line for each check. Returns 1 if one fails."""
    if wants_help(argv, "plugins check NAME"):
        return 0
    if not argv or argv[0].startswith("-"):
        raise ConfigurationError(
            "say what to check, before any flags: corelm plugins check NAME [FLAGS] (corelm plugins lists the names)"
        )
    settings, host = configure(argv[1:])
    registration = find(host, argv[0])
    print(f"{registration}{_model_clause(registration, settings)}", flush=True)
    try:
        suite = suite_for(registration, settings, host)
    except StartupError as error:
        return _report([CheckResult(name="it can be built", passed=False, message=str(error))])
    if suite is None:
        print(f"  there is no conformance suite for the kind {registration.kind}; it is registered as it should be")
        return 0
    return _report(_checked(suite))


def find(host: PluginHost, name: str) -> Registration:
    """What is registered as NAME or KIND:NAME. Raises `StartupError` if that is nothing, or more than one thing."""
    kinds = [kind for kind in KINDS if kind == name.partition(":")[0]]
    if kinds and ":" in name:
        return host.select(kinds[0], name.partition(":")[2])
    found = [host.registrations[kind][name] for kind in KINDS if name in host.registrations[kind]]
    if not found:
        raise PluginError(_explain_absence(host, name))
    if len(found) > 1:
        choices = " or ".join(f"{one.kind}:{one.name}" for one in found)
        raise ConfigurationError(f"{name!r} is registered more than once; say {choices}")
    return found[0]


def _explain_absence(host: PluginHost, name: str) -> str:
    for plugin in host.plugins:
        if plugin.name == name and (plugin.failure or plugin.skipped):
            return f"{plugin} is not loaded: {plugin.failure or plugin.skipped}"
        if plugin.name == name and plugin.provides:
            return f"{plugin} registers nothing called {name!r}; it registers {', '.join(plugin.provides)}"
    names = sorted({name for kind in KINDS for name in host.registrations[kind]})
    clauses = [f"nothing is registered as {name!r}{did_you_mean(name, names)}"]
    clauses += [f"registered: {', '.join(names) or 'nothing'}", *explain_absent(host.plugins)]
    return "; ".join(clauses)


def _model_clause(registration: Registration, settings: Settings) -> str:
    needed = registration.kind in ("executor", "tokenizer")
    return f" with model {settings.model!r} (--model chooses another; a small one is quick)" if needed else ""


def _checked(suite: object) -> Iterator[CheckResult]:
    """Results as they come, without the log messages of the failures that the suite provokes."""
    logging.disable(logging.CRITICAL)
    try:
        yield from each_check(suite)
    finally:
        logging.disable(logging.NOTSET)


def _report(results: Iterable[CheckResult]) -> int:
    counts: Counter[str] = Counter()
    for result in results:
        outcome = "skipped" if result.skipped else "ok" if result.passed else "FAIL"
        counts[outcome] += 1
        print(f"  {outcome:<7}  {result.name}", flush=True)
        for line in result.message.splitlines():
            print(f"           {line}")
    print(f"{counts['ok']} ok, {counts['FAIL']} failed, {counts['skipped']} skipped")
    return 1 if counts["FAIL"] else 0
