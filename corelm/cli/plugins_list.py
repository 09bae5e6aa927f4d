"""``corelm plugins list``: what is installed, what it provides, and what failed to load."""

import json
from collections.abc import Sequence
from typing import Any

from corelm.cli.configuration import load_plugins
from corelm.cli.messages import table
from corelm.plugins import PluginHost
from corelm.settings import Bootstrap, check_flags, fields_of


def main(argv: Sequence[str]) -> int:
    """Print the plugins as a table, or with ``--json`` as a list."""
    flags = [word for word in argv if word != "--json"]
    check_flags(fields_of(Bootstrap), flags)
    plugins = _described(load_plugins(flags))
    if "--json" in argv:
        print(json.dumps(plugins))
    else:
        print(table(("plugin", "distribution", "provides"), [row for plugin in plugins for row in _rows(plugin)]))
    return 0


def _described(host: PluginHost) -> list[dict[str, Any]]:
    summaries = host.summaries()
    return [
        {
            "name": plugin.name,
            "distribution": plugin.distribution,
            "version": plugin.version,
            "provides": {key: summaries[key] for key in plugin.provides},
            "failure": plugin.failure,
            "skipped": plugin.skipped,
        }
        for plugin in host.plugins
    ]


def _rows(plugin: dict[str, Any]) -> list[tuple[str, str, str]]:
    notes = [f"{key}  {summary}".rstrip() for key, summary in plugin["provides"].items()]
    if plugin["failure"]:
        notes.append(f"NOT LOADED: {plugin['failure']}")
    if plugin["skipped"]:
        notes.append(f"not loaded: {plugin['skipped']}")
    first = (plugin["name"], f"{plugin['distribution']} {plugin['version']}")
    return [(*(first if number == 0 else ("", "")), note) for number, note in enumerate(notes or [""])]
