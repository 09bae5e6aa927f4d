"""Broken plugins of every sort, installed side by side: only those that were chosen stop a server, and always."""

import json
import os
import subprocess
import sys

import pytest
from distributions import install

HOOK = "from corelm.api import hookimpl\n@hookimpl\ndef corelm_register_schedulers(register):\n    "
FAILING = "def fail(context): raise {error}\n" + HOOK + "register({name!r}, fail)"
MARK = "from pathlib import Path\nPath(__file__).with_suffix('.imported').touch()\n"

BROKEN = {
    "at_import": ("raise ImportError('no libfoo')", "ImportError: no libfoo"),
    "exits_at_import": ("raise SystemExit(7)", "SystemExit: 7"),
    "at_registration": (HOOK + "register('half', print); raise OSError('no disk')", "OSError: no disk"),
    "exits_at_registration": (HOOK + "raise SystemExit(8)", "SystemExit: 8"),
    "at_adding_hooks": (
        "from corelm.api import hookimpl\n@hookimpl\ndef corelm_add_hooks(add): raise KeyError('hook')",
        "KeyError: 'hook'",
    ),
    "from_the_future": (
        "corelm_api = ((7, 0), (8, 0))\n" + HOOK + "register('later', print)",
        "needs corelm API >= 7.0",
    ),
    "no_module": ("", "names the module 'plugin_dist_no_module', which is not installed"),
    "takes_a_name": (HOOK + "register('taken', print)", "scheduler 'taken' is registered by both"),
}
SOUND = {
    "a_sound_one": HOOK + "register('taken', print)",
    "in_its_factory": FAILING.format(error="ValueError('no table')", name="raising"),
    "exits_in_its_factory": FAILING.format(error="SystemExit(9)", name="exiting"),
    "blocked": MARK + HOOK + "register('blocked', print)",
}
SCRIPT = """
from corelm import LLM, SamplingParams
with LLM("fake", executor="fake", tokenizer="fake") as llm:
    print(llm.generate(["hello"], SamplingParams(max_tokens=3, ignore_eos=True))[0].completion_tokens)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory with every plugin above."""
    site = tmp_path_factory.mktemp("site")
    for name, (code, _) in BROKEN.items():
        install(site, name, code, version="0.1")
    for name, code in SOUND.items():
        install(site, name, code)
    install(site, "twice", HOOK + "register('left', print)", distribution="dist-left")
    install(site, "twice", HOOK + "register('right', print)", distribution="dist-right")
    (site / "plugin_dist_no_module.py").unlink()
    return site


@pytest.fixture
def run(site):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}

    def call(*words, **variables):
        environment = {**clean, "PYTHONPATH": str(site), "CORELM_BLOCK_PLUGINS": "blocked", **variables}
        command = [sys.executable, *words]
        return subprocess.run(
            command, env=environment, cwd=site, capture_output=True, text=True, timeout=60, check=False
        )

    return call


def test_whatever_is_broken_but_not_chosen_is_reported_and_stops_nothing(run):
    done = run("-c", "import logging; logging.basicConfig()\n" + SCRIPT)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    for name, (_, cause) in BROKEN.items():
        [line] = [
            line for line in done.stderr.splitlines() if f"plugin {name!r} (" in line and " is not loaded: " in line
        ]
        assert f"plugin {name!r} (dist-{name} 0.1) is not loaded: " in line
        assert cause in line
    assert "dist-left 1.0" in done.stderr
    assert "dist-right 1.0" in done.stderr


def test_the_list_shows_what_loaded_and_why_the_rest_did_not(run):
    done = run("-m", "corelm", "plugins", "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    failures = {plugin["name"]: plugin["failure"] for plugin in listed if plugin["failure"]}
    assert failures.keys() == BROKEN.keys() | {"twice"}
    assert all(plugin["provides"] == {} for plugin in listed if plugin["failure"])
    assert [plugin["skipped"] for plugin in listed if plugin["name"] == "blocked"] == ["blocked by block_plugins"]


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ("raising", "scheduler 'raising' of plugin 'in_its_factory' (dist-in_its_factory 1.0) could not be created: "),
        (
            "exiting",
            "scheduler 'exiting' of plugin 'exits_in_its_factory' (dist-exits_in_its_factory 1.0) could not be",
        ),
        ("half", "plugin 'at_registration' (dist-at_registration 0.1) is not loaded: OSError: no disk"),
        ("later", "plugin 'from_the_future' (dist-from_the_future 0.1) is not loaded: it needs corelm API >= 7.0"),
        ("blocked", "plugin 'blocked' (dist-blocked 1.0) is blocked by block_plugins"),
        ("left", "several distributions use this plugin name, remove all but one: plugin 'twice' (dist-left 1.0), "),
        ("taken", "(dist-takes_a_name 0.1); name one of the two in CORELM_BLOCK_PLUGINS"),
    ],
)
def test_whatever_is_broken_and_chosen_ends_the_start_with_the_cause(run, scheduler, message):
    chosen = {"CORELM_MODEL": "fake", "CORELM_EXECUTOR": "fake", "CORELM_TOKENIZER": "fake", "CORELM_OPENAI_PORT": "0"}
    done = run("-m", "corelm", "run", "--scheduler", scheduler, **chosen)
    assert done.returncode in (1, 2), done.stderr
    assert message in done.stderr.splitlines()[-1]


def test_what_is_blocked_or_not_allowed_is_not_even_imported(run, site):
    mark = site / "plugin_dist_blocked.imported"
    assert run("-m", "corelm", "plugins").returncode == 0
    assert run("-m", "corelm", "plugins", CORELM_PLUGINS="a_sound_one,fake", CORELM_BLOCK_PLUGINS="").returncode == 0
    assert not mark.exists()
    assert run("-m", "corelm", "plugins", CORELM_BLOCK_PLUGINS="").returncode == 0
    assert mark.exists()
