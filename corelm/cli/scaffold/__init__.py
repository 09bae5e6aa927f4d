"""The projects that ``corelm plugins new`` writes: small plugins that work, to be changed into what is wanted."""

from importlib.resources import files
from string import Template

import msgspec

TEMPLATES = files(__name__)


class Sample(msgspec.Struct, frozen=True):
    """What the project of a kind is."""

    summary: str
    use: str
    """A command that selects it."""
    note: str


SAMPLES = {
    "scheduler": Sample(
        "shortest job first, with ageing",
        "corelm run --scheduler ${name}",
        "`--${flag}.tokens-per-second` says how fast a request that waits gains on shorter ones.",
    ),
    "executor": Sample(
        "a model that says the alphabet",
        "corelm run --executor ${name} --tokenizer NAME",
        "Its tokens are bytes, so it goes with a tokenizer of bytes, as `corelm plugins new NAME --kind tokenizer`\n"
        "writes one. A real executor reads the model's files in `load`, and keeps keys and values in the KV blocks.",
    ),
    "tokenizer": Sample(
        "one token for each byte of UTF-8",
        "corelm run --tokenizer ${name} --executor NAME",
        "It goes with models that were trained on bytes, or with the toy that `corelm plugins new NAME --kind\n"
        "executor` writes.",
    ),
    "frontend": Sample(
        "a prompt a line on TCP, answers as JSON lines",
        "corelm run --frontend ${name}",
        "Ask it with `nc 127.0.0.1 8001` and a line of text. Its flags are `--${flag}.host`, `--${flag}.port` and\n"
        "`--${flag}.max-tokens`.",
    ),
}
"""By kind."""


def module_of(name: str) -> str:
    """The module of the plugin called `name`."""
    return f"corelm_{name}"


def distribution_of(name: str) -> str:
    """What pip calls the plugin called `name`."""
    return module_of(name).replace("_", "-")


def project(kind: str, name: str) -> dict[str, str]:
    """The files of a plugin project, text by path."""
    sample = SAMPLES[kind]
    values = {
        "kind": kind,
        "name": name,
        "flag": name.replace("_", "-"),
        "module": module_of(name),
        "distribution": distribution_of(name),
        "summary": sample.summary,
    }
    values |= {"use": Template(sample.use).substitute(values), "note": Template(sample.note).substitute(values)}
    return {
        ".gitignore": _filled("common/gitignore", values),
        "README.md": _filled("common/README.md", values),
        "pyproject.toml": _filled("common/pyproject.toml", values),
        f"{module_of(name)}.py": _filled(f"{kind}/plugin.py", values),
        f"tests/test_{name}.py": _filled(f"{kind}/test_plugin.py", values),
    }


def _filled(template: str, values: dict[str, str]) -> str:
    return Template((TEMPLATES / f"{template}.tmpl").read_text(encoding="utf-8")).substitute(values)
