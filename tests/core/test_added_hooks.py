"""Hooks that plugins add for other plugins, with real distributions on the path."""

import sys

import pytest
from distributions import install

from corelm.errors import PluginError, StartupError
from corelm.plugins import PluginHost

KITCHEN = """
from corelm.api import hookimpl

def corelm_kitchen_register_dishes(register):
    "Register dishes."

@hookimpl
def corelm_add_hooks(add):
    global dishes
    dishes = add(corelm_kitchen_register_dishes)
"""
COOK = "from corelm.api import hookimpl, StartupError\n@hookimpl\ndef corelm_kitchen_register_dishes(register):\n    "


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]


def load(*names, **lists):
    """The host, and what the plugin ``kitchen`` got for its hook."""
    host = PluginHost.load(names, **lists)
    return host, sys.modules["plugin_dist_kitchen"].dishes if "plugin_dist_kitchen" in sys.modules else None


def failures(host):
    return {record.name: record.failure for record in host.plugins if record.failure}


def test_other_plugins_implement_the_hook_whatever_the_order(site):
    install(site, "kitchen", KITCHEN)
    install(site, "a_cook", COOK + "register('soup', lambda pot: f'soup in {pot}', summary='hot')")
    install(site, "z_cook", COOK + "register('Cake', lambda pot: f'cake in {pot}')")
    host, dishes = load("a_cook", "kitchen", "z_cook")
    assert dishes.names == ("Cake", "soup")
    assert dishes.create("soup", "tin") == "soup in tin"
    records = {record.name: record for record in host.plugins}
    assert records["a_cook"].provides == ("corelm_kitchen_register_dishes:soup",)
    assert host.summaries()["corelm_kitchen_register_dishes:soup"] == "hot"
    assert [record.name for record in host.plugins if not record.skipped] == ["a_cook", "kitchen", "z_cook"]


def test_a_plugin_may_implement_its_own_hook(site):
    install(
        site,
        "kitchen",
        """
        from corelm.api import hookimpl

        def spec(register): ...
        spec.__name__ = "corelm_kitchen_register_dishes"

        @hookimpl
        def corelm_add_hooks(add):
            global dishes
            dishes = add(spec)

        @hookimpl
        def corelm_kitchen_register_dishes(register):
            register("bread", lambda pot: "bread")
        """,
    )
    _, dishes = load("kitchen")
    assert dishes.create("bread", None) == "bread"


def test_each_host_has_plugins_of_its_own(site):
    install(site, "kitchen", KITCHEN)
    install(site, "cook", COOK + "register('soup', print)")
    _, first = load("cook", "kitchen")
    _, second = load("kitchen")
    assert (first.names, second.names) == (("soup",), ())


@pytest.mark.parametrize("lists", [{"block": ["kitchen"]}, {}])
def test_without_the_plugin_that_adds_it_the_hook_is_unknown(site, lists):
    install(site, "kitchen", KITCHEN)
    install(site, "cook", COOK + "register('soup', print)")
    install(site, "guest", COOK.replace("@hookimpl", "@hookimpl(optionalhook=True)") + "register('cake', print)")
    host, _ = load("cook", "guest", **lists)
    assert failures(host).keys() == {"cook"}
    assert "unknown hook 'corelm_kitchen_register_dishes'" in failures(host)["cook"]


BROKEN_COOKS = {
    "raises": ("register('soup', print); raise OSError('no water')", "OSError: no water"),
    "exits": ("register('soup', print); raise SystemExit(4)", "SystemExit: 4"),
    "name": ("register('hot soup', print)", "corelm_kitchen_register_dishes name 'hot soup' must match"),
    "factory": ("register('soup', 'print')", "the factory of corelm_kitchen_register_dishes 'soup' is not callable"),
    "twice": (
        "register('soup', print); register('soup', print)",
        "registers corelm_kitchen_register_dishes 'soup' twice",
    ),
    "argument": ("register('soup', print, spicy=True)", "unexpected keyword argument 'spicy'"),
}


@pytest.mark.parametrize("kind", BROKEN_COOKS)
def test_a_broken_implementation_is_rolled_back_and_spares_the_others(site, caplog, kind):
    code, cause = BROKEN_COOKS[kind]
    install(site, "kitchen", KITCHEN)
    install(
        site, "broken", COOK + code + "\n@hookimpl\ndef corelm_register_schedulers(register):\n    register('s', print)"
    )
    install(site, "cook", COOK + "register('cake', print)")
    host, dishes = load("broken", "cook", "kitchen")
    assert cause in failures(host)["broken"]
    assert dishes.names == ("cake",)
    assert host.registrations["scheduler"] == {}
    assert "plugin 'broken' (dist-broken 1.0) is not loaded" in caplog.text
    with pytest.raises(PluginError, match=r"nothing named 'soup' is registered .*; available: cake; plugin 'broken'"):
        dishes.create("soup", None)


def test_a_name_that_two_plugins_register_stands_for_neither(site):
    install(site, "kitchen", KITCHEN)
    install(site, "one", COOK + "register('soup', print)")
    install(site, "two", COOK + "register('soup', print)", version="2.0")
    host, dishes = load("kitchen", "one", "two")
    both = r"'soup' is registered by both plugin 'one' \(dist-one 1.0\) and plugin 'two' \(dist-two 2.0\)"
    with pytest.raises(PluginError, match=both):
        dishes.create("soup", None)
    assert dishes.names == ()
    assert failures(host).keys() == {"two"}


@pytest.mark.parametrize(
    ("factory", "cause"),
    [
        ("lambda pot: 1 / 0", "could not be created: ZeroDivisionError"),
        ("exit", "could not be created: SystemExit"),
        ("lambda pot: None", "could not be created: its factory returned None"),
    ],
)
def test_a_factory_that_fails_is_reported_with_its_plugin(site, factory, cause):
    install(site, "kitchen", KITCHEN)
    install(site, "cook", COOK + f"register('soup', {factory})")
    _, dishes = load("cook", "kitchen")
    with pytest.raises(PluginError, match=rf"corelm_kitchen_register_dishes 'soup' of plugin 'cook' .* {cause}"):
        dishes.create("soup", None)


def test_a_startup_error_of_a_factory_passes_as_it_is(site):
    install(site, "kitchen", KITCHEN)
    install(site, "cook", "def f(pot): raise StartupError('buy salt')\n" + COOK + "register('soup', f)")
    _, dishes = load("cook", "kitchen")
    with pytest.raises(StartupError, match=r"^buy salt$"):
        dishes.create("soup", None)


ADD = "from corelm.api import hookimpl\n@hookimpl\ndef corelm_add_hooks(add):\n    "
BROKEN_OWNERS = {
    "foreign": ("def corelm_other_x(register): ...\n" + ADD + "add(corelm_other_x)", "begins with corelm_kitchen_"),
    "class": ("class corelm_kitchen_x: ...\n" + ADD + "add(corelm_kitchen_x)", "must be a function"),
    "arguments": ("def corelm_kitchen_x(name): ...\n" + ADD + "add(corelm_kitchen_x)", "one argument, named register"),
    "twice": (
        "def corelm_kitchen_x(register): ...\n" + ADD + "[add(corelm_kitchen_x) for _ in '12']",
        "already added by",
    ),
    "raises": (ADD + "raise ValueError('closed')", "ValueError: closed"),
}


@pytest.mark.parametrize("kind", BROKEN_OWNERS)
def test_a_hook_that_cannot_be_added(site, kind):
    code, cause = BROKEN_OWNERS[kind]
    install(site, "kitchen", code)
    assert cause in failures(PluginHost.load(["kitchen"]))["kitchen"]


def test_a_plugin_cannot_take_a_hook_of_the_core(site):
    install(site, "register", "def corelm_register_executors(register): ...\n" + ADD + "add(corelm_register_executors)")
    assert "is not marked with" in failures(PluginHost.load(["register"]))["register"]


def test_a_hook_belongs_to_whoever_added_it_first(site):
    """The names of entry points can overlap."""
    install(site, "kitchen", "def corelm_kitchen_sink_x(register): ...\n" + ADD + "add(corelm_kitchen_sink_x)")
    install(site, "kitchen_sink", "def corelm_kitchen_sink_x(register): ...\n" + ADD + "add(corelm_kitchen_sink_x)")
    install(site, "guest", "")
    cause = "the hook corelm_kitchen_sink_x that it adds was already added by plugin 'kitchen' (dist-kitchen 1.0)"
    assert failures(PluginHost.load(["kitchen", "kitchen_sink", "guest"])) == {"kitchen_sink": cause}
