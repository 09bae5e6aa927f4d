"""Every example loads without its heavy libraries, says what it provides, and shows how it is run."""

import json
import re
import tomllib
from pathlib import Path

import pytest

EXAMPLES = sorted(path.parent for path in (Path(__file__).parents[3] / "examples").glob("*/pyproject.toml"))


def project(example):
    return tomllib.loads((example / "pyproject.toml").read_text())["project"]


def test_every_example_is_listed(clean, developer):
    light, heavy = (json.loads(python.corelm("plugins", "--json").stdout) for python in (clean, developer))
    listed = {plugin["name"]: plugin for plugin in heavy + light}
    for example in EXAMPLES:
        for name in project(example)["entry-points"]["corelm"]:
            plugin = listed[name]
            assert plugin["failure"] is None
            assert plugin["distribution"] == project(example)["name"]
            assert all(plugin["provides"].values()), f"{name} has no summary"
    provided = {key for plugin in listed.values() for key in plugin["provides"]}
    assert provided >= {
        "executor:transformers",
        "frontend:jsonl",
        "observer:request_log",
        "observer:sqlite_log",
        "scheduler:cache_affinity",
        "scheduler:deadline",
        "scheduler:shortest_first",
        "tokenizer:bytes",
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_imports_from_corelm_only_what_is_public(example):
    modules = [path for path in example.rglob("*.py") if "build" not in path.parts]
    assert modules
    for module in modules:
        imported = re.findall(r"^\s*(?:from|import) (corelm(?:\.\w+)*)\b", module.read_text(), re.MULTILINE)
        assert set(imported) <= {"corelm.api", "corelm.testing"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_a_readme_says_how_to_install_and_run_it(example):
    text = (example / "README.md").read_text()
    assert f"pip install ./examples/{example.name}" in text
    assert "corelm run" in text
