"""``corelm config``: every effective value and where it comes from. Takes the flags of ``corelm run``."""

import json
from collections.abc import Sequence

from corelm.cli.configuration import configure, wants_help
from corelm.cli.messages import table
from corelm.settings import sources


def main(argv: Sequence[str]) -> int:
    """Print the settings as a table, or with ``--json`` as an object by key."""
    if wants_help(argv, "config [--json]"):
        return 0
    settings, _ = configure([word for word in argv if word != "--json"])
    effective = sources(settings)
    if "--json" in argv:
        print(json.dumps({key: {"value": value, "source": source} for key, (value, source) in effective.items()}))
    else:
        rows = [(key, json.dumps(value), source) for key, (value, source) in effective.items()]
        print(table(("setting", "value", "source"), rows))
    return 0
