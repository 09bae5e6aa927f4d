"""``corelm plugins new`` writes projects that can be installed, pass their tests and keep their contracts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corelm.cli.scaffold import SAMPLES, project

RUFF = str(Path(sys.executable).with_name("ruff"))


@pytest.fixture
def run(tmp_path):
    """Runs Python with what is installed in the directory ``site``."""
    site = tmp_path / "site"
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("CORELM_", "PYTEST_", "PIP_"))
    }

    def run(*words, cwd=tmp_path, **settings):
        return subprocess.run(
            [sys.executable, "-P", *map(str, words)],
            capture_output=True,
            text=True,
            env={**variables, "PYTHONPATH": str(site), **settings},
            cwd=cwd,
            timeout=100,
            check=False,
        )

    return run


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_new_project_is_complete(run, tmp_path, kind):
    name = f"my_{kind}"
    written = run("-m", "corelm", "plugins", "new", name, "--kind", kind)
    assert written.returncode == 0, written.stderr
    assert written.stdout.startswith(f"corelm_{name}: .gitignore, README.md, pyproject.toml, corelm_{name}.py, tests/")
    folder = tmp_path / f"corelm_{name}"
    for words in (["check"], ["format", "--check"]):
        linted = subprocess.run([RUFF, *words, "--no-cache", folder], capture_output=True, text=True, check=False)
        assert linted.returncode == 0, linted.stdout + linted.stderr

    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    installed = run("-m", "pip", "install", "-q", *offline, "--target", tmp_path / "site", folder)
    assert installed.returncode == 0, installed.stderr
    tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
    assert tested.returncode == 0, tested.stdout
    checked = run("-m", "corelm", "plugins", "check", name, CORELM_PLUGINS=f"{name},fake", CORELM_MODEL="fake")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    again = run("-m", "corelm", "plugins", "new", name, "--kind", kind, "--directory", "elsewhere")
    assert again.returncode == 2
    assert f"'{name}' is taken by plugin '{name}' (corelm-my-{kind} 0.1.0)" in again.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fcfs", "--kind", "scheduler"], "'fcfs' is taken by plugin 'fcfs'"),
        (["priority", "--kind", "scheduler"], "'priority' is taken by plugin 'fcfs'"),
        (["gguf", "--kind", "executor"], "a module called corelm_gguf is installed"),
        (["My-Plugin", "--kind", "scheduler"], "'My-Plugin' is no name for a plugin: it must match"),
        (["auto", "--kind", "scheduler"], "'auto' is no name for a plugin"),
        (["m" * 41, "--kind", "scheduler"], "at most 40 characters"),
        (["model", "--kind", "scheduler"], "'model' is a setting of corelm"),
        (["mine", "--kind", "observer"], "argument --kind: invalid choice: 'observer'"),
        (["mine"], "the following arguments are required: --kind"),
        (["mine", "--kind", "scheduler", "--directory", "taken"], "taken exists; name a new directory"),
        (["mine", "--kind", "scheduler", "--directory", "taken/file/sub"], "cannot write taken/file/sub: Not a dir"),
    ],
)
def test_what_cannot_be_written_is_one_line_and_exit_code_2(run, tmp_path, words, message):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    refused = run("-m", "corelm", "plugins", "new", *words)
    assert refused.returncode == 2
    assert message in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "file"]


@pytest.mark.parametrize("kind", SAMPLES)
def test_names_of_any_length_keep_the_code_clean(tmp_path, kind):
    for name in ("a", "a_rather_long_name_of_40_characters_12345"):
        for path, text in project(kind, name[:40]).items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    for words in (["check"], ["format", "--check"]):
        linted = subprocess.run([RUFF, *words, "--no-cache", tmp_path], capture_output=True, text=True, check=False)
        assert linted.returncode == 0, linted.stdout + linted.stderr


def test_help(run):
    shown = run("-m", "corelm", "plugins", "new", "--help")
    assert shown.returncode == 0
    assert "{executor,frontend,scheduler,tokenizer}" in shown.stdout
