import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


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
