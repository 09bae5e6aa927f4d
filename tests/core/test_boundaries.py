"""The walls of the house: who may import whom, how heavy an import is, how large a file may grow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = sorted((ROOT / "corelm").rglob("*.py"))
PLUGINS = sorted(p for p in (ROOT / "plugins").glob("*/corelm_*/**/*.py") if "build" not in p.parts)
LIBRARIES = {
    "corelm_torch": {"corelm_gguf"},
    "corelm_hf": {"corelm_gguf"},
    "corelm_cpu": {"corelm_torch"},
    "corelm_gpu": {"corelm_torch"},
}
"""The only imports between plugins: libraries."""
HEAVY = {"torch", "transformers", "litestar", "uvicorn", "triton", "tokenizers", "numpy"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            yield node.module


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_imports_no_heavy_library_and_no_plugin(path):
    for module in imports(path):
        top = module.split(".")[0]
        assert top not in HEAVY
        assert not top.startswith("corelm_")


@pytest.mark.parametrize("path", PLUGINS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_plugin_imports_only_what_is_public(path):
    own = path.relative_to(ROOT / "plugins").parts[0]
    allowed = {own, *LIBRARIES.get(own, ())}
    for module in imports(path):
        top = module.split(".")[0]
        if top == "corelm":
            assert module.startswith(("corelm.api", "corelm.testing")), module
        elif top.startswith("corelm_"):
            assert top in allowed, module


@pytest.mark.parametrize("path", [*CORE, *PLUGINS], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert text.count("\n") <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 80, node.name


@pytest.mark.parametrize("path", [*CORE, *PLUGINS], ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_unpickles(path):
    assert not {"pickle", "marshal", "cloudpickle", "dill"} & {m.split(".")[0] for m in imports(path)}
    assert "torch.load" not in path.read_text()


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_corelm_loads_nothing_heavy():
    code = "import sys, corelm, corelm.api, corelm.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    assert not HEAVY & set(run(code).split())


def test_importing_corelm_is_fast():
    code = "import time; t = time.perf_counter(); import corelm; print(time.perf_counter() - t)"
    assert min(float(run(code)) for _ in range(3)) < 0.3
