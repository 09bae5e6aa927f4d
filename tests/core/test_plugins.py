import sys

import pytest
from distributions import install

from corelm.errors import ConfigurationError, ModelLoadError, PluginError, StartupError
from corelm.plugins import PluginHost

EXECUTOR = """
from corelm.api import hookimpl

@hookimpl
def corelm_register_executors(register):
    register({name!r}, lambda context: (context, {name!r}), summary="runs", unavailable=lambda: {unavailable!r})
"""


def executor(name, unavailable=None):
    return EXECUTOR.format(name=name, unavailable=unavailable)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]


def records(host):
    """Those that were asked to load."""
    return [record for record in host.plugins if not record.skipped]


def test_what_a_plugin_registers_can_be_selected_and_created(site):
    install(site, "good", executor("fast"), version="3.1")
    host = PluginHost.load(["good"])
    [record] = records(host)
    assert (record.name, record.distribution, record.version) == ("good", "dist-good", "3.1")
    assert record.provides == ("executor:fast",)
    assert record.failure is None
    chosen = host.select("executor", "fast")
    assert (chosen.summary, chosen.plugin) == ("runs", record)
    with pytest.raises(
        PluginError, match=r"executor 'fast' of plugin 'good'.*returned a tuple, which is not a corelm\.api\.Ex"
    ):
        host.create(chosen, 7)


REGISTER = "from corelm.api import hookimpl\n@hookimpl\ndef corelm_register_schedulers(register):\n    "
BROKEN = {
    "import": ("import a_module_that_is_missing", "ModuleNotFoundError: No module named 'a_module_that_is_missing'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "half": (REGISTER + "register('one', print); raise RuntimeError('in\\nthe middle')", "RuntimeError: in the middle"),
    "hook": ("from corelm.api import hookimpl\n@hookimpl\ndef corelm_regster(): ...", "unknown hook 'corelm_regster'"),
    "argument": (
        "from corelm.api import hookimpl\n@hookimpl\ndef corelm_register_frontends(registry): ...",
        "Argument(s) {'registry'}",
    ),
    "name": (REGISTER + "register('Not-Good', print)", "scheduler name 'Not-Good' must match"),
    "auto": (REGISTER + "register('auto', print)", "not be 'auto'"),
    "twice": (REGISTER + "register('one', print); register('one', print)", "registers scheduler 'one' twice"),
    "factory": (REGISTER + "register('one', 3)", "the factory of scheduler 'one' is not callable"),
    "settings": (REGISTER + "register('one', print, settings=dict)", "must be a pydantic model class"),
    "newer": ("corelm_api = ((9, 0), (10, 0))", "it needs corelm API >= 9.0 and < 10.0, this is 0."),
    "version": ("corelm_api = '1.0'", "must be two version tuples"),
    "core": (
        "from pydantic import BaseModel\nclass S(BaseModel):\n    num_seqs: int = 1\n"
        + REGISTER
        + "register('max', print, settings=S)",
        "setting 'max_num_seqs' of scheduler 'max' is already a setting of the core",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_reported_rolled_back_and_spares_the_others(site, caplog, kind):
    code, cause = BROKEN[kind]
    install(site, "broken", code, version="0.7")
    install(site, "working", executor("fine"))
    host = PluginHost.load(["broken", "working"])
    broken, working = records(host)
    assert cause in broken.failure
    assert broken.provides == ()
    assert "\n" not in broken.failure
    assert host.registrations["scheduler"] == {}
    assert working.failure is None
    assert host.select("executor", "fine").plugin == working
    assert f"plugin 'broken' (dist-broken 0.7) is not loaded: {broken.failure}" in caplog.text


def test_a_broken_plugin_answers_no_hooks(site):
    install(
        site,
        "broken",
        """
        from corelm.api import hookimpl
        @hookimpl
        def corelm_resolve_model(name): raise AssertionError("must not be asked")
        @hookimpl
        def corelm_register_frontends(register): raise OSError("no")
        """,
    )
    with pytest.raises(ModelLoadError, match="no plugin knows a model named 'm'"):
        PluginHost.load(["broken"]).resolve_model("m")


def test_a_declared_api_range_that_fits_is_accepted(site):
    install(site, "fits", "corelm_api = ((0, 1), (1, 0))\n" + executor("fits"))
    assert PluginHost.load(["fits"]).select("executor", "fits")


def test_a_name_registered_by_two_plugins_cannot_be_selected(site):
    install(site, "first", executor("same"), version="1.1")
    install(site, "second", executor("same"), version="2.2")
    host = PluginHost.load(["first", "second"])
    both = r"'same' is registered by both plugin 'first' \(dist-first 1.1\) and plugin 'second' \(dist-second 2.2\)"
    with pytest.raises(PluginError, match=both):
        host.select("executor", "same")
    with pytest.raises(PluginError, match=both):
        host.select("executor", "auto")
    host = PluginHost.load(["first", "second"], block=["second"])
    assert host.select("executor", "same").plugin.name == "first"


def test_an_entry_point_name_used_by_two_distributions_loads_neither(site):
    install(site, "same", executor("one"), distribution="dist-left")
    install(site, "same", executor("two"), distribution="dist-right")
    host = PluginHost.load(["same"])
    assert [record.distribution for record in records(host)] == ["dist-left", "dist-right"]
    for record in records(host):
        assert "dist-left 1.0" in record.failure
        assert "dist-right 1.0" in record.failure
    assert host.registrations["executor"] == {}


def test_two_names_for_one_module_are_refused(site):
    install(site, "one", "", distribution="dist-one", module="plugin_dist_shared")
    install(site, "two", "", distribution="dist-two", module="plugin_dist_shared")
    first, second = records(PluginHost.load(["one", "two"]))
    assert first.failure is None
    assert second.failure == "another plugin name stands for the same module"


@pytest.mark.parametrize("lists", [{"allow": ["wrking"]}, {"block": ["wrking"]}])
def test_an_unknown_name_in_a_list_is_an_error_with_a_suggestion(site, lists):
    install(site, "working", executor("fine"))
    with pytest.raises(ConfigurationError, match="no plugin named 'wrking' is installed; did you mean 'working'"):
        PluginHost.load(**lists)


def test_selecting_something_unknown_tells_what_there_is_and_what_failed(site):
    install(site, "broken", "raise ImportError('libcuda is missing')", version="0.7")
    install(site, "blocked", executor("blocked"))
    install(site, "working", executor("fine"))
    host = PluginHost.load(["broken", "blocked", "working"], block=["blocked"])
    with pytest.raises(PluginError) as caught:
        host.select("executor", "fne")
    message = str(caught.value)
    assert message.startswith("no executor named 'fne'; did you mean 'fine'?; available: fine")
    assert "plugin 'broken' (dist-broken 0.7) is not loaded: ImportError: libcuda is missing" in message
    assert "plugin 'blocked' (dist-blocked 1.0) is blocked by block_plugins" in message


@pytest.mark.parametrize(
    ("executors", "chosen"),
    [
        ({"gpu": None, "cpu": None}, "gpu"),
        ({"gpu": "no GPU", "cpu": None}, "cpu"),
        ({"cpu": None, "other": None}, "cpu"),
        ({"other": None}, "other"),
        ({"gpu": "no GPU", "other": None}, "other"),
    ],
)
def test_the_automatic_executor(site, executors, chosen):
    for name, unavailable in executors.items():
        install(site, f"p{name}", executor(name, unavailable))
    assert PluginHost.load([f"p{name}" for name in executors]).select("executor", "auto").name == chosen


@pytest.mark.parametrize("executors", [{"one": None, "two": None}, {"gpu": "no GPU here"}, {}])
def test_the_automatic_executor_never_guesses(site, executors):
    for name, unavailable in executors.items():
        install(site, f"p{name}", executor(name, unavailable))
    with pytest.raises(PluginError, match="no executor could be chosen") as caught:
        PluginHost.load([f"p{name}" for name in executors]).select("executor", "auto")
    assert all(reason in str(caught.value) for reason in executors.values() if reason)


def test_an_availability_check_that_raises_is_the_reason(site):
    install(site, "pgpu", executor("gpu").replace("lambda: None", "lambda: 1 / 0"))
    with pytest.raises(PluginError, match="check failed: ZeroDivisionError"):
        PluginHost.load(["pgpu"]).select("executor", "auto")


@pytest.mark.parametrize("error", ["ValueError('bad')", "SystemExit('bad')"])
def test_a_factory_that_fails_is_reported_with_its_plugin(site, error):
    install(site, "bad", f"def fail(context): raise {error}\n" + REGISTER + "register('bad', fail)", version="0.3")
    host = PluginHost.load(["bad"])
    with pytest.raises(PluginError, match=r"scheduler 'bad' of plugin 'bad' \(dist-bad 0.3\) could not be .*: bad"):
        host.create(host.select("scheduler", "bad"), None)


def test_a_startup_error_of_a_factory_passes_as_it_is(site):
    code = "from corelm.api import StartupError\ndef fail(context): raise StartupError('the port is taken')\n"
    install(site, "bad", code + REGISTER + "register('bad', fail)")
    host = PluginHost.load(["bad"])
    with pytest.raises(StartupError, match=r"^the port is taken$"):
        host.create(host.select("scheduler", "bad"), None)


RESOLVER = """
from pathlib import Path
from corelm.api import ModelLoadError, ResolvedModel, hookimpl

@hookimpl
def corelm_resolve_model(name):
    if name == "mine-{number}":
        return ResolvedModel(name=name, path=Path("dir{number}"), format="gguf")
    if name == "damaged-{number}":
        raise ModelLoadError("weights are missing")
    if name == "bug-{number}":
        raise KeyError("oops")
"""


def test_models_are_resolved_by_the_plugin_that_knows_them(site):
    for number in (1, 2):
        install(site, f"resolver{number}", RESOLVER.format(number=number))
    host = PluginHost.load(["resolver1", "resolver2"])
    assert host.resolve_model("mine-1").path.name == "dir1"
    assert host.resolve_model("mine-2").path.name == "dir2"
    with pytest.raises(ModelLoadError, match=r"^weights are missing$"):
        host.resolve_model("damaged-1")
    with pytest.raises(PluginError, match=r"plugin 'resolver1' \(dist-resolver1 1.0\) could not look up .*KeyError"):
        host.resolve_model("bug-1")
    with pytest.raises(ModelLoadError, match="no plugin knows a model named 'other'"):
        host.resolve_model("other")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    x: int = Field(default_factory=lambda: 1 / 0)", "ZeroDivisionError"),
        ("    x: 'Undefined' = 1", "Undefined"),
        ("    x: int = 1\n    @model_validator(mode='after')\n    def leave(self): raise SystemExit(0)", "SystemExit"),
        ("    x: int = Field(1, alias='y')", "have an alias for x"),
    ],
)
def test_settings_that_cannot_be_made_are_the_plugin_s_fault_alone(site, body, reason):
    source = "from pydantic import BaseModel, Field, model_validator\nfrom corelm.api import hookimpl\n"
    source += f"class Mine(BaseModel):\n{body}\n"
    source += "@hookimpl\ndef corelm_register_schedulers(register): register('mine', print, settings=Mine)\n"
    install(site, "mine", source)
    host = PluginHost.load(["mine", "fcfs"])
    (record,) = [one for one in host.plugins if one.name == "mine"]
    assert reason in record.failure
    assert host.select("scheduler", "fcfs")


def test_a_forgotten_mark_is_named(site):
    install(site, "mine", "def corelm_register_schedulers(register): register('mine', print)\n")
    host = PluginHost.load(["mine"])
    (record,) = [one for one in host.plugins if one.name == "mine"]
    assert record.failure == "its function corelm_register_schedulers is not marked with @corelm.api.hookimpl"


def test_what_an_interrupted_installation_leaves_stops_nothing(site):
    install(site, "mine", "")
    next(site.glob("*.dist-info/METADATA")).unlink()
    host = PluginHost.load(["mine", "fcfs"])
    assert str(next(one for one in host.plugins if one.name == "mine")).startswith("plugin 'mine' (")
