"""The page for plugin authors shows code that runs, and the kit needs nothing that they may not have."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from corelm import testing

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "testing-plugins.md"


def test_its_code_is_that_of_our_own_tests():
    spec = importlib.util.spec_from_file_location("embed", DOCS / "embed.py")
    embed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(embed)
    text = PAGE.read_text(encoding="utf-8")
    assert embed.fill(text) == text


def test_it_names_every_suite_and_every_attribute():
    text = PAGE.read_text(encoding="utf-8")
    suites = [getattr(testing, name) for name in testing.__all__ if name.endswith("Conformance")]
    assert suites
    for suite in suites:
        assert f"`{suite.__name__}`" in text
        flags = [
            name for base in suite.__mro__ for name, value in vars(base).items() if isinstance(value, bool | float)
        ]
        assert all(f"`{suite.__name__}.{name}`" in text for name in flags)


def test_the_kit_needs_no_pytest():
    code = "import sys; sys.modules['pytest'] = None; import corelm.testing, corelm.testing.conformance.running"
    subprocess.run([sys.executable, "-c", code], check=True)
