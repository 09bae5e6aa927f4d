"""``corelm plugins check`` on plugins that are installed."""

import os
import subprocess
import sys

import pytest
from distributions import install

MIXED = """
import asyncio
from corelm.api import Frontend, Observer, SchedulingPolicy, hookimpl
from corelm.testing import FakeExecutor, FakeTokenizer

class Forgetful(FakeTokenizer):
    def encode(self, text, *, add_special_tokens=True):
        return [*super().encode(text.upper())]

    def token_bytes(self, token_id):
        return bytes()

class Silent(Frontend):
    async def serve(self, engine, stop):
        await stop.wait()

class Deaf(Frontend):
    async def serve(self, engine, stop):
        raise ValueError("no ears")

class Toy(FakeExecutor):
    def load(self, progress):
        raise ValueError("the toy is broken")

@hookimpl
def corelm_register_tokenizers(register):
    register("mixed", lambda context: Forgetful())

@hookimpl
def corelm_register_frontends(register):
    register("mixed", lambda context: Silent())
    register("deaf", lambda context: Deaf())
    register("unmade", lambda context: None)

@hookimpl
def corelm_register_executors(register):
    register("toy", lambda context: Toy())
    register("elsewhere", lambda context: Toy(), unavailable=lambda: "no such chip")

@hookimpl
def corelm_register_observers(register):
    register("watcher", lambda context: Observer())
"""


@pytest.fixture(scope="module")
def corelm(tmp_path_factory):
    """Runs the command with the plugins above, one that cannot be loaded, and corelm's own."""
    site = tmp_path_factory.mktemp("site")
    install(site, "mixed", MIXED, version="2.5")
    install(site, "lame", "raise ImportError('no libfoo')")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}
    environment = {
        **variables,
        "PYTHONPATH": str(site),
        "CORELM_MODEL": "fake",
        "CORELM_PLUGINS": "mixed,lame,fake,fcfs",
    }

    def run(*words):
        command = [sys.executable, "-m", "corelm", "plugins", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=site, timeout=90, check=False
        )
        assert "Traceback" not in done.stderr
        return done

    return run


def test_a_good_plugin_passes(corelm):
    done = corelm("check", "tokenizer:fake")
    assert done.returncode == 0, done.stdout
    first, *checks, last = done.stdout.splitlines()
    assert first.startswith("tokenizer 'fake' of plugin 'fake' (corelm-fake 0.1.0) with model 'fake'")
    assert "  ok       incremental decoding equals the whole" in checks
    assert last == f"{len(checks)} ok, 0 failed, 0 skipped"


def test_a_broken_plugin_fails_with_what_to_fix(corelm):
    done = corelm("check", "tokenizer:mixed")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert (
        lines[lines.index("  FAIL     special tokens are shown or skipped") + 1].strip().startswith("token_bytes(256)")
    )
    skipped = lines.index("  skipped  decoding gives back the text")
    assert "it is not lossless" in lines[skipped + 1]
    assert "1 failed" in lines[-1]


def test_a_policy_may_starve_requests(corelm):
    done = corelm("check", "priority")
    assert done.returncode == 0, done.stdout
    assert "  skipped  nobody starves" in done.stdout.splitlines()


def test_a_frontend_is_checked_as_far_as_a_stranger_can(corelm):
    done = corelm("check", "frontend:mixed")
    assert done.returncode == 0, done.stdout
    assert "it sets no url, so nobody can know whether it listens" in done.stdout
    assert "  ok       it returns when told to stop" in done.stdout
    assert done.stdout.count("only its author can say how a client asks") == 5
    done = corelm("check", "deaf")
    assert done.returncode == 1
    assert "raised ValueError: no ears" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["executor:fake", "--fake.fail-load", "true"], "the fake model was told to fail"),
        (["executor:fake", "--model", "unheard-of"], "no plugin knows a model named 'unheard-of'"),
        (["toy"], "could not load the model: ValueError: the toy is broken"),
        (["elsewhere"], "it cannot run on this machine: no such chip"),
        (["unmade"], "its factory returned None"),
    ],
)
def test_what_cannot_be_built_is_reported(corelm, words, message):
    done = corelm("check", *words)
    assert done.returncode == 1
    assert "  FAIL     it can be built" in done.stdout
    assert message in done.stdout
    assert done.stdout.endswith("0 ok, 1 failed, 0 skipped\n")


def test_kinds_without_a_suite_say_so(corelm):
    done = corelm("check", "watcher")
    assert done.returncode == 0
    assert "there is no conformance suite for the kind observer" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "say what to check, before any flags: corelm plugins check NAME [FLAGS]"),
        (["check", "mixed"], "'mixed' is registered more than once; say tokenizer:mixed or frontend:mixed"),
        (["check", "watchr"], "nothing is registered as 'watchr'; did you mean 'watcher'?"),
        (["check", "executor:watcher"], "no executor named 'watcher'"),
        (["check", "lame"], "plugin 'lame' (dist-lame 1.0) is not loaded: ImportError: no libfoo"),
        (["check", "cpu"], "plugin 'cpu' (corelm-cpu 0.1.0) is not loaded: not named by plugins"),
        (["check", "watcher", "--colour", "red"], "unknown flag --colour"),
        (["checks", "watcher"], "no command 'plugins checks'; did you mean 'check'?"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(corelm, words, message):
    done = corelm(*words)
    assert done.returncode == 2
    assert f"corelm: error: {message}" in done.stderr


def test_help_and_list(corelm):
    text = corelm("--help").stdout
    assert all(f"corelm plugins {command}" in text for command in ("[list]", "check NAME", "new NAME"))
    assert "--block-plugins" in text
    assert "--model" in corelm("check", "--help").stdout
    assert corelm("list", "--json").stdout == corelm("--json").stdout
