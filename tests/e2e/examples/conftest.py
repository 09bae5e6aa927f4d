"""The examples, installed as somebody else would: all of them, once, into a clean environment.

The dependencies of those that run models are gigabytes; they are installed beside the developer's environment instead.
"""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/pyproject.toml"))
CORE = [ROOT, ROOT / "plugins/corelm_fcfs", ROOT / "plugins/corelm_openai", ROOT / "tests/dists/corelm_fake"]
RUN_WITH_MODELS = {"byte_tokenizer", "jsonl_batch"}
"""Examples that models are run with, and go into both environments."""


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def needs_torch(example):
    return any("torch" in dependency for dependency in project(example)["dependencies"])


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(500))  # whoever comes first waits for the installation


class Environment:
    """A Python with corelm and plugins."""

    def __init__(self, python, folder, **variables):
        self.python = python
        self.folder = folder
        """Where programs run."""
        self._variables = variables

    def run(self, *arguments, code=0, stdin="", **variables):
        """Run Python; returns the finished process, which must end with `code`."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CORELM_", "PYTHONPATH"))}
        done = subprocess.run(
            [self.python, *map(str, arguments)],
            env=inherited | self._variables | variables,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    def corelm(self, *arguments, **options):
        """Run the command ``corelm``."""
        return self.run("-m", "corelm", *arguments, **options)


def pip(*arguments, **variables):
    command = [sys.executable, "-m", "pip", *map(str, arguments), "-q", "-c", ROOT / "constraints.txt"]
    subprocess.run(command, env=os.environ | variables, check=True, timeout=400)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """A folder with the wheels of corelm and the examples, all built with one copy of the build tools."""
    tools, folder = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("wheels")
    pip("install", "--target", tools, "hatchling")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, *CORE, *EXAMPLES, PYTHONPATH=str(tools))
    return folder


def wheels_of(wheels, examples):
    return [next(wheels.glob(f"{project(example)['name'].replace('-', '_')}-*.whl")) for example in examples]


@pytest.fixture(scope="session")
def clean_python(tmp_path_factory, wheels):
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder)
    python = folder / "bin" / "python"
    light = [example for example in EXAMPLES if not needs_torch(example)]
    pip("--python", python, "install", *wheels_of(wheels, CORE + light))
    return python


@pytest.fixture
def clean(clean_python, tmp_path):
    """The clean environment, in an empty folder."""
    return Environment(clean_python, tmp_path)


@pytest.fixture(scope="session")
def beside(tmp_path_factory, wheels):
    """A folder of examples to be put on the path of the developer's environment."""
    folder = tmp_path_factory.mktemp("beside")
    examples = [example for example in EXAMPLES if needs_torch(example) or example.name in RUN_WITH_MODELS]
    pip("install", "--no-deps", "--target", folder, *wheels_of(wheels, examples))
    return folder


@pytest.fixture
def developer(beside, tmp_path):
    """The environment of these tests with examples beside it, in an empty folder."""
    variables = {"PYTHONPATH": str(beside), "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    return Environment(sys.executable, tmp_path, **variables)
