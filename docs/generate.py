"""Writes the reference pages from the code (docs/settings.md, hooks.md, api.md) and the code blocks of the guides.

``python docs/generate.py`` writes them; ``--check`` only shows how they differ, and exits 1 if they do.
"""

import difflib
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from corelm_openai.hookspecs import (
    corelm_openai_register_reasoning_formats,
    corelm_openai_register_routes,
    corelm_openai_register_tool_formats,
)
from corelm_torch.hookspecs import corelm_torch_register_models
from embed import fill
from public_names import module_summary, public_names

from corelm import hookspecs
from corelm.plugins import PluginHost
from corelm.settings import SettingField, compose, fields_of

DOCS = Path(__file__).parent
BAR = "\\|"
"""A bar within a table."""
NOTE = "<!-- Written by docs/generate.py; do not edit. -->"
SETTINGS_INTRO = """\
A flag wins over an environment variable, a variable over the settings file, the file over the default. The file is
`corelm.toml` in the working directory, or what `--config` or `CORELM_CONFIG` names. `corelm config` shows every
effective value and where it comes from.

Lists are written with commas (`a,b`) or as JSON (`["a", "b"]`) in flags and variables. An empty variable counts as
not set. A `CORELM_*` variable, flag or key that does not exist is an error, so that a typing error is noticed;
variables that an orchestrator sets for a service named `corelm`, and those of plugins that are not loaded, are logged
and ignored.
"""
HOOKS_INTRO = """\
A plugin is a module with some of these functions, marked with `corelm.api.hookimpl` and named by an entry point:

```toml
[project.entry-points.corelm]
my_policy = "my_policy"
```

It may declare which versions of the contract it works with, at least the first and below the second:
`corelm_api = ((0, 2), (1, 0))`; [compatibility.md](compatibility.md) says what is promised. A plugin that cannot be
imported, declares another version, has an unknown hook or registers a name or a setting that is taken is not loaded:
that is logged with its version and the cause, and fatal only if what it provides was selected. `corelm plugins` lists
what was loaded and what was not; with `CORELM_TRACE_PLUGINS=1` every call of a hook is written to stderr.
"""
ADDED_HOOKS_INTRO = """\
A plugin can add hooks, which others then implement like those above. It implements `corelm_add_hooks` and keeps the
`corelm.api.Extensions` that it is given for each hook. The plugins of this repository add four.
"""
API_INTRO = """\
Everything that a plugin may import from corelm, grouped by contract. The docstrings say what is promised: read them in
an editor, with `python -m pydoc corelm.api.StepPlan`, or in the modules named here.
"""


def first_party() -> list[str]:
    """Entry-point names of the plugins in this repository."""
    projects = [tomllib.loads(path.read_text()) for path in sorted(DOCS.parent.glob("plugins/*/pyproject.toml"))]
    return [name for project in projects for name in project["project"].get("entry-points", {}).get("corelm", {})]


def settings_page() -> str:
    host = PluginHost.load(allow=first_party())
    broken = [f"{plugin}: {plugin.failure}" for plugin in host.plugins if plugin.failure]
    if broken:
        raise SystemExit(f"cannot document plugins that do not load: {'; '.join(broken)}")
    parts = [f"# Settings\n\n{NOTE}\n\n{SETTINGS_INTRO}"]
    for group, fields in groupby(fields_of(compose(host.settings_models())), key=lambda field: field.group):
        title = f"`{group}`" if group else "Core"
        parts.append(f"## {title}\n\n{_table(list(fields))}")
    return "\n".join(parts)


def _table(fields: list[SettingField]) -> str:
    rows = ["| Flag | Variable | File key | Type | Default | Meaning |", "|---|---|---|---|---|---|"]
    for field in fields:
        required = field.info.is_required()
        default = "required" if required else "" if field.default is None else f"`{_toml(field.default)}`"
        key = "" if field.key == "config" else f"`{field.key}`"
        cells = [f"`{field.flag}`", f"`{field.variable}`", key, field.type_name, default]
        rows.append(
            " | ".join(cell.replace("|", BAR) for cell in ["", *cells, field.info.description or "", ""]).strip()
        )
    return "\n".join(rows) + "\n"


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def hooks_page() -> str:
    hooks = [item for item in vars(hookspecs).values() if hasattr(item, "corelm_spec")]
    parts = [f"# Hooks\n\n{NOTE}\n\n{HOOKS_INTRO}"]
    parts += [f"## `{hook.__name__}`\n\n{_signature(hook)}\n\n{inspect.getdoc(hook)}\n" for hook in hooks]
    parts.append(_callback("register", hookspecs.Register))
    parts.append(f"# Hooks that plugins add\n\n{ADDED_HOOKS_INTRO}")
    parts.append(_callback("add", hookspecs.AddHook))
    parts.append(_callback("register", hookspecs.RegisterExtension))
    added = [
        corelm_torch_register_models,
        corelm_openai_register_routes,
        corelm_openai_register_tool_formats,
        corelm_openai_register_reasoning_formats,
    ]
    parts += [f"## `{hook.__name__}`\n\n{_signature(hook)}\n\n{inspect.getdoc(hook)}\n" for hook in added]
    return "\n".join(parts)


def _callback(name: str, protocol: type[Any]) -> str:
    signature = _signature(protocol.__call__).replace("def __call__(", f"def {name}(").replace("self, ", "")
    return f"## The callback `{name}`\n\n{signature}\n\n{inspect.getdoc(protocol)}\n"


def _signature(function: Callable[..., Any]) -> str:
    """The signature as it is written in the source."""
    source = textwrap.dedent(inspect.getsource(function))
    found = re.search(r"def .*?\) -> [^:]+", source, re.DOTALL)
    assert found, f"{function.__name__} has no annotated signature"
    text = found.group().replace("(\n    self,", "(")
    return f"```python\n{text}\n```"


def api_page() -> str:
    parts = [f"# The public names\n\n{NOTE}\n\n{API_INTRO}"]
    for facade in ("corelm.api", "corelm.testing"):
        parts.append(f"## `{facade}`\n\n{module_summary(facade)}\n")
        in_parts = facade == "corelm.api"
        for module, names in groupby(public_names(facade), key=lambda public: public.module if in_parts else facade):
            if module != facade:
                parts.append(f"### `{module}`\n\n{module_summary(module)}\n")
            rows = ["| Name | What it is |", "|---|---|"]
            rows += [f"| `{public.name}` | {public.text.replace('|', BAR)} |" for public in names]
            parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def guide(name: str) -> str:
    """A guide, its code blocks filled from the files that they name."""
    return fill((DOCS / name).read_text(encoding="utf-8"))


GUIDES = ["testing-plugins.md", *(f"guides/{path.name}" for path in sorted(DOCS.glob("guides/*.md")))]
PAGES: dict[str, Callable[[], str]] = {"settings.md": settings_page, "hooks.md": hooks_page, "api.md": api_page} | {
    name: partial(guide, name) for name in GUIDES
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` print how the files differ from them."""
    stale = False
    for name, write in PAGES.items():
        path, fresh = DOCS / name, write()
        if "--check" not in arguments:
            path.write_text(fresh, encoding="utf-8")
            continue
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        diff = list(difflib.unified_diff(old.splitlines(True), fresh.splitlines(True), f"docs/{name}", "generated"))
        sys.stdout.writelines(diff)
        stale = stale or bool(diff)
    if stale:
        sys.stderr.write("the reference pages are stale; run: python docs/generate.py\n")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
