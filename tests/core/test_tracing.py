"""The setting trace_plugins: every hook call on stderr."""

import os
import subprocess
import sys

import pytest
from distributions import install

from corelm.plugins import PluginHost

CHATTY = """
from pathlib import Path
from corelm.api import ModelLoadError, ResolvedModel, hookimpl

def corelm_{name}_register_things(register): ...

@hookimpl
def corelm_add_hooks(add):
    add(corelm_{name}_register_things)

@hookimpl
def corelm_register_schedulers(register):
    register({name!r}, print)

@hookimpl
def corelm_resolve_model(name):
    if name == "broken-{name}":
        raise ModelLoadError("no weights")
    return ResolvedModel(name=name, path=Path("here"), format="gguf") if name == "of-{name}" else None
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_each_call_names_the_plugins_and_what_came_of_it(site, capsys):
    for name in ("one", "two"):
        install(site, name, CHATTY.format(name=name))
    install(site, "user", "from corelm.api import hookimpl\n@hookimpl\ndef corelm_one_register_things(register): ...")
    host = PluginHost.load(["one", "two", "user"], trace=True)
    assert lines(capsys) == [
        "corelm: hook corelm_add_hooks(add) of one -> []",
        "corelm: hook corelm_add_hooks(add) of two -> []",
        "corelm: hook corelm_register_schedulers(register) of one -> []",
        "corelm: hook corelm_register_schedulers(register) of two -> []",
        "corelm: hook corelm_one_register_things(register) of user -> []",
    ]
    host.resolve_model("of-one")
    model = "ResolvedModel(name='of-one', path=PosixPath('here'), format='gguf')"
    assert lines(capsys) == [
        "corelm: hook corelm_resolve_model(name='of-one') of two -> None",
        f"corelm: hook corelm_resolve_model(name='of-one') of one -> {model}",
    ]


def test_a_call_that_raises_is_written_too(site, capsys):
    install(site, "one", CHATTY.format(name="one"))
    install(site, "bad", "from corelm.api import hookimpl\n@hookimpl\ndef corelm_register_executors(register): 1 / 0")
    host = PluginHost.load(["bad", "one"], trace=True)
    assert "hook corelm_register_executors(register) of bad raised ZeroDivisionError(" in capsys.readouterr().err
    with pytest.raises(Exception, match="no weights"):
        host.resolve_model("broken-one")
    assert lines(capsys) == [
        "corelm: hook corelm_resolve_model(name='broken-one') of one raised ModelLoadError('no weights')"
    ]


def test_nothing_is_written_unless_asked_for(site, capsys):
    install(site, "one", CHATTY.format(name="one"))
    PluginHost.load(["one"]).resolve_model("of-one")
    assert lines(capsys) == []


def test_the_variable_turns_it_on_before_plugins_are_loaded(site):
    install(site, "one", CHATTY.format(name="one"))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}
    variables |= {"PYTHONPATH": str(site), "CORELM_PLUGINS": "one", "CORELM_TRACE_PLUGINS": "1"}
    command = [sys.executable, "-m", "corelm", "plugins", "--json"]
    done = subprocess.run(command, env=variables, cwd=site, capture_output=True, text=True, timeout=30, check=True)
    assert "corelm: hook corelm_register_schedulers(register) of one -> []" in done.stderr.splitlines()
    assert "hook" not in done.stdout.replace("corelm_one_register_things", "")
