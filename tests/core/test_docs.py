import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import corelm.api
import corelm.testing

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = sorted(DOCS.glob("guides/*.md"))


def test_the_reference_pages_are_fresh():
    result = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_hook_is_documented():
    from corelm import hookspecs

    page = (DOCS / "hooks.md").read_text()
    hooks = [name for name in vars(hookspecs) if name.startswith("corelm_")]
    assert len(hooks) >= 5
    assert all(f"## `{name}`" in page for name in hooks)


def test_every_hook_is_used_by_a_plugin_here_and_by_a_test():
    from corelm import hookspecs

    root = DOCS.parent
    plugins = [path.read_text() for folder in ("plugins", "examples") for path in root.glob(f"{folder}/**/*.py")]
    tests = [path.read_text() for path in root.glob("tests/**/*.py") if path != Path(__file__)]
    for name in (name for name in vars(hookspecs) if name.startswith("corelm_")):
        assert any(f"def {name}(" in text for text in plugins), f"no plugin in this repository implements {name}"
        assert any(name in text for text in tests), f"no test is about {name}"


def test_every_setting_is_documented():
    from corelm.plugins import PluginHost
    from corelm.settings import compose, fields_of

    page = (DOCS / "settings.md").read_text()
    ours = {path.parent.name for path in DOCS.parent.glob("plugins/*/pyproject.toml")}
    host = PluginHost.load()
    models = {
        offer.name: offer.settings
        for offers in host.registrations.values()
        for offer in offers.values()
        if offer.settings is not None and offer.plugin.distribution.replace("-", "_") in ours
    }
    fields = fields_of(compose(models))
    assert len(fields) > 20
    for field in fields:
        assert f"| `{field.flag}` | `{field.variable}` |" in page
        assert field.info.description, f"{field.flag} has no description"


@pytest.mark.parametrize("module", [corelm.api, corelm.testing], ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module):
    page = (DOCS / "api.md").read_text()
    section = page.split(f"\n## `{module.__name__}`\n")[1].split("\n## ")[0]
    described = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))
    assert set(described) == set(module.__all__)
    assert all(described.values())


def test_there_is_a_guide_for_each_contract():
    from corelm.plugins import KINDS

    names = {path.stem for path in GUIDES}
    assert names >= {"policy" if kind == "scheduler" else kind for kind in KINDS}
    readmes = [path.read_text() for path in (DOCS.parent / "README.md", *DOCS.parent.glob("plugins/*/README.md"))]
    for name in names:
        assert any(f"docs/guides/{name}.md" in readme for readme in readmes), f"no README leads to {name}.md"


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_code_in_a_guide_comes_from_tested_files(path):
    """Blocks in Python follow a marker, so that they are what the file says; links lead somewhere."""
    lines = path.read_text().splitlines()
    blocks = [number for number, line in enumerate(lines) if line == "```python"]
    assert all(lines[number - 1].startswith("<!-- code: ") for number in blocks)
    for link in re.findall(r"\]\(([^)#]+)", path.read_text()):
        assert (path.parent / link).exists(), link


@pytest.fixture
def embed():
    spec = spec_from_file_location("embed", DOCS / "embed.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_markers_are_filled_and_filled_anew(embed, tmp_path, monkeypatch):
    monkeypatch.setattr(embed, "ROOT", tmp_path)
    source = (
        "import x\n\n\n@x.y\ndef f():\n    return 1\n\n\nclass C:\n    a = 1\n\n    def g(self):\n        return 2\n"
    )
    (tmp_path / "m.py").write_text(source)
    f, c = "@x.y\ndef f():\n    return 1\n", "class C:\n    a = 1\n\n    def g(self):\n        return 2\n"
    source = f"import x\n\n\n{f}\n\n{c}"
    (tmp_path / "m.py").write_text(source)
    first = embed.fill("Text\n\n<!-- code: m.py#C,f -->\n\nMore\n<!-- code: m.py -->\n```python\nold\n```\nend\n")
    assert first == (
        f"Text\n\n<!-- code: m.py#C,f -->\n```python\n{c}\n\n{f}```\n\nMore\n"
        f"<!-- code: m.py -->\n```python\n{source}```\nend\n"
    )
    assert embed.fill(first) == first
    assert "```python\n    def g(self):\n        return 2\n```" in embed.fill("<!-- code: m.py#C.g -->\n")


@pytest.mark.parametrize("target", ["m.py#absent", "m.py#C.absent", "absent.py"])
def test_a_marker_for_what_is_not_there_is_an_error(embed, tmp_path, monkeypatch, target):
    monkeypatch.setattr(embed, "ROOT", tmp_path)
    (tmp_path / "m.py").write_text("class C:\n    pass\n")
    with pytest.raises(SystemExit, match=re.escape(target)):
        embed.fill(f"<!-- code: {target} -->\n")
