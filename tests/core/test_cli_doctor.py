"""``corelm doctor``: what it says, and what keeps it from saying more."""

import json
import os
import subprocess
import sys

import pytest
from distributions import install

from corelm.cli import configuration, main

GOOD = """
from pydantic import BaseModel, SecretStr
from corelm.api import Finding, hookimpl

class GoodSettings(BaseModel):
    token: SecretStr = SecretStr("")
    size: int = 1

@hookimpl
def corelm_register_executors(register):
    register("fast", print, settings=GoodSettings)

@hookimpl
def corelm_register_schedulers(register):
    register("bare", print)

@hookimpl
def corelm_diagnose(settings):
    yield Finding(level="ok", text=f"of {sorted(settings)} the size is {settings['fast'].size}")
    yield Finding(level="note", text="it is slow", remedy="wait")
"""
BAD = """
from corelm.api import Finding, hookimpl

@hookimpl
def corelm_diagnose():
    yield Finding(level="ok", text="so far, so good")
    {failure}
"""
OTHERS = """
from corelm.api import hookimpl

@hookimpl
def corelm_register_tokenizers(register):
    register("words", print)

@hookimpl
def corelm_register_frontends(register):
    register("pipe", print)
"""
POOR = """
from pydantic import BaseModel
from corelm.api import hookimpl

class PoorSettings(BaseModel):
    size: int

@hookimpl
def corelm_register_executors(register):
    register("tired", print, unavailable=lambda: "it is tired")
    register("needy", print, settings=PoorSettings)
"""
CHOICE = ["--executor", "fast", "--scheduler", "bare", "--tokenizer", "words", "--frontend", "pipe"]


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """A directory on the path with plugins `good` and `others`, and no others loaded unless they are named."""
    for name in [name for name in os.environ if name.startswith("CORELM_")]:
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORELM_PLUGINS", "good,others")
    monkeypatch.setattr(configuration, "set_up_logging", lambda level: None)  # it is pytest that logs here
    install(tmp_path, "good", GOOD)
    install(tmp_path, "others", OTHERS)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]


@pytest.fixture
def doctor(capsys):
    """Run it. Returns the exit code, and the findings of each section as (level, text, remedy)."""

    def run(*flags):
        code = main(["doctor", "--json", *flags])
        sections = json.loads(capsys.readouterr().out)
        return code, {
            section["name"]: [(one["level"], one["text"], one["remedy"]) for one in section["findings"]]
            for section in sections
        }

    return run


def test_a_machine_in_order(doctor, site):
    install(site, "idle", "")
    code, sections = doctor(*CHOICE)
    assert code == 0
    assert ("ok", "plugin 'good' (dist-good 1.0) is loaded", None) in sections["plugins"]
    assert ("note", "plugin 'idle' (dist-idle 1.0) is not loaded: not named by plugins", None) in sections["plugins"]
    assert ("ok", "executor 'fast' of plugin 'good' (dist-good 1.0)", None) in sections["selected"]
    assert len(sections["selected"]) == 4
    assert sections["plugin 'good' (dist-good 1.0)"] == [
        ("ok", "of ['fast'] the size is 1", None),
        ("note", "it is slow", "wait"),
    ]
    assert "plugin 'others' (dist-others 1.0)" not in sections


def test_it_looks_like_a_list(capsys):
    assert main(["doctor", *CHOICE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("corelm 0.")
    assert lines[-4:-1] == ["  ok       of ['fast'] the size is 1", "  note     it is slow", "           wait"]
    assert lines[-1].endswith(" 0 problem")


def test_settings_are_named_and_their_values_are_not(doctor, monkeypatch):
    monkeypatch.setenv("CORELM_FAST_TOKEN", "hunter2")
    _, sections = doctor(*CHOICE, "--fast.size", "7")
    assert ("note", "fast.token is set by variable CORELM_FAST_TOKEN", None) in sections["settings"]
    assert ("note", "fast.size is set by flag --fast.size", None) in sections["settings"]
    assert "hunter2" not in str(sections)
    assert sections["plugin 'good' (dist-good 1.0)"][0][1] == "of ['fast'] the size is 7"


def test_settings_that_cannot_be_read_are_problems_and_the_rest_is_said_all_the_same(doctor, site):
    install(site, "bad", BAD.format(failure=""))
    code, sections = doctor("--plugins", "good,others,bad", "--fast.size", "x", "--block-size", "0")
    assert code == 1
    assert [level for level, _, _ in sections["settings"]] == ["problem", "problem"]
    assert "flag --block-size: " in sections["settings"][0][1]
    assert "selected" not in sections
    assert sections["plugin 'bad' (dist-bad 1.0)"] == [("ok", "so far, so good", None)]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ("1 / 0", "its diagnosis failed: ZeroDivisionError: division by zero (plugin_dist_bad.py:7)"),
        ("raise SystemExit(3)", "its diagnosis failed: SystemExit: 3 (plugin_dist_bad.py:7)"),
        ("yield 3", "its diagnosis failed: TypeError: it found a int, which is not a corelm.api.Finding"),
        (
            "yield Finding(level='fine', text='x')",
            "its diagnosis failed: ValueError: 'fine' is no level of a finding; use ok, note, problem",
        ),
    ],
)
def test_a_plugin_that_raises_is_a_problem_after_what_it_found(doctor, site, failure, text):
    install(site, "bad", BAD.format(failure=failure))
    code, sections = doctor(*CHOICE, "--plugins", "good,others,bad")
    assert code == 1
    assert sections["plugin 'bad' (dist-bad 1.0)"] == [("ok", "so far, so good", None), ("problem", text, None)]
    assert "plugin 'good' (dist-good 1.0)" in sections


def test_a_plugin_that_does_not_load_is_a_problem(doctor, site):
    install(site, "lame", "raise ImportError('no libfoo')")
    code, sections = doctor(*CHOICE, "--plugins", "good,others,lame")
    assert code == 1
    [(level, text, remedy)] = [finding for finding in sections["plugins"] if "'lame'" in finding[1]]
    assert level == "problem"
    assert "is not loaded: ImportError: no libfoo" in text
    assert remedy.endswith("CORELM_BLOCK_PLUGINS: lame")


def test_what_is_selected_and_missing_or_unable_is_a_problem(doctor, site):
    install(site, "poor", POOR)
    asked = ["--executor", "tired", "--scheduler", "bear", "--observers", "none"]
    code, sections = doctor(*CHOICE[4:], *asked, "--plugins", "good,others,poor")
    assert code == 1
    problems = [text for level, text, _ in sections["selected"] if level == "problem"]
    assert problems[0] == "executor 'tired' of plugin 'poor' (dist-poor 1.0) cannot run here: it is tired"
    assert problems[1].startswith("no scheduler named 'bear'; did you mean 'bare'?")
    assert problems[2].startswith("no observer named 'none'")


def test_a_required_setting_of_what_is_selected_is_a_problem(doctor, site):
    install(site, "poor", POOR)
    code, sections = doctor(*CHOICE[2:], "--executor", "needy", "--plugins", "good,others,poor")
    assert code == 1
    assert sections["selected"][0][:2] == (
        "problem",
        "needy.size must be set: flag --needy.size, variable CORELM_NEEDY_SIZE, or the settings file",
    )


def test_what_the_machine_has_is_said(doctor):
    _, sections = doctor(*CHOICE)
    [name] = [name for name in sections if name.startswith("corelm ")]
    text = "\n".join(text for _, text, _ in sections[name])
    for part in ("contract with plugins", f"Python {sys.version.split()[0]}", f"{os.cpu_count()} CPUs", "GiB"):
        assert part in text


def test_help_lists_the_flags(capsys):
    assert main(["doctor", "--help"]) == 0
    assert "--fast.size" in capsys.readouterr().out


def test_with_everything_installed_nothing_heavy_is_imported():
    code = (
        "import sys; from corelm.cli import main; main(['doctor']); "
        "print(*sorted({'torch', 'transformers', 'tokenizers', 'litestar', 'uvicorn'} & sys.modules.keys()))"
    )
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
