"""The table of deprecations, and the warnings that name the plugin."""

import sys

import pytest
from distributions import install

import corelm.api
from corelm import deprecations
from corelm.api import API_VERSION
from corelm.deprecations import DEPRECATIONS, CorelmDeprecationWarning, Deprecation, warn_deprecated
from corelm.plugins import PluginHost


def problems(table, version):
    """What is wrong with a table of deprecations when the contract has that version."""
    for name, deprecation in table.items():
        if version >= deprecation.removed_in:
            yield f"{name} was to be removed in {deprecation.removed_in}: remove it, and its line in the table"
        if deprecation.since > version:
            yield f"{name} is deprecated since {deprecation.since}, which has not come yet"
        major, minor = deprecation.since
        kept = deprecation.removed_in == (major + 1, 0) or deprecation.removed_in >= (
            major,
            minor + deprecations.KEPT_FOR,
        )
        if not kept:
            yield f"{name} must be kept for {deprecations.KEPT_FOR} minor releases"


def test_nothing_is_kept_beyond_its_time():
    assert list(problems(DEPRECATIONS, API_VERSION)) == []


@pytest.mark.parametrize(
    ("since", "removed_in", "version", "problem"),
    [
        ((1, 1), (1, 3), (1, 2), None),
        ((1, 1), (1, 3), (1, 3), "was to be removed in"),
        ((1, 1), (1, 2), (1, 1), "must be kept for 2 minor releases"),
        ((1, 2), (1, 4), (1, 1), "has not come yet"),
    ],
)
def test_what_is_wrong_with_a_table_is_found(since, removed_in, version, problem):
    found = list(problems({"x": Deprecation(since=since, removed_in=removed_in, instead="y")}, version))
    assert bool(found) == bool(problem)
    assert problem is None or problem in found[0]


@pytest.fixture
def renamed(monkeypatch):
    """`SchedulingPolicy` was once called `Policy`."""
    entry = Deprecation(since=(0, 2), removed_in=(0, 4), instead="SchedulingPolicy")
    monkeypatch.setitem(DEPRECATIONS, "corelm.api.Policy", entry)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("renamed")
def test_an_old_name_still_works_and_the_warning_names_the_plugin(site):
    install(
        site,
        "ancient",
        """
        from corelm.api import Policy, hookimpl
        @hookimpl
        def corelm_register_schedulers(register):
            register("ancient", lambda context: Policy())
        """,
        version="0.9",
    )
    with pytest.warns(CorelmDeprecationWarning) as caught:
        host = PluginHost.load(["ancient"])
    assert type(host.create(host.select("scheduler", "ancient"), None)) is corelm.api.SchedulingPolicy
    assert [str(warning.message) for warning in caught] == [
        "plugin 'ancient' (dist-ancient 0.9) uses corelm.api.Policy, which is deprecated since API 0.2 and will be "
        "removed in 0.4; use SchedulingPolicy"
    ]


@pytest.mark.usefixtures("renamed")
def test_code_outside_plugins_is_named_by_its_module():
    with pytest.warns(CorelmDeprecationWarning, match=f"^module {__name__!r} uses corelm.api.Policy, which"):
        assert corelm.api.Policy is corelm.api.SchedulingPolicy


def test_other_names_are_missing_as_ever():
    with pytest.raises(AttributeError, match=r"module 'corelm.api' has no attribute 'Plan'"):
        corelm.api.Plan  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Plan'"):
        exec("from corelm.api import Plan", {"__name__": "elsewhere"})


@pytest.mark.usefixtures("renamed")
def test_what_is_no_name_is_warned_of_by_the_module_that_uses_it(site):
    install(site, "ancient", "")
    with pytest.warns(CorelmDeprecationWarning, match=r"^plugin 'ancient' \(dist-ancient 1.0\) uses"):
        warn_deprecated("corelm.api.Policy", "plugin_dist_ancient")


def test_the_warning_is_shown_to_whoever_runs_corelm():
    """Python hides a DeprecationWarning of an imported module; this one must be seen."""
    assert issubclass(CorelmDeprecationWarning, FutureWarning)
