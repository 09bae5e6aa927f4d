"""Good policies pass the suite; each broken one fails the check that is about its fault, with what to do about it."""

import importlib.util
import re
from pathlib import Path
from unittest import SkipTest

import pytest
from conformance import broken_policies as broken

from corelm.api import InvalidRequestError, SchedulingPolicy
from corelm.testing import PolicyConformance
from corelm.testing.conformance.policy_world import World, live_through
from corelm.testing.conformance.running import run_suite

EXAMPLES = Path(__file__).parents[3] / "examples"


class TestFirstComeFirstServed(PolicyConformance):
    def make_policy(self):
        return SchedulingPolicy()


class TestShortestFirst(PolicyConformance):
    starves = True

    def make_policy(self):
        name = "corelm_shortest_first"
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / "shortest_first" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.ShortestFirst(tokens_per_second_waited=0.0)


class TestEarliestDeadlineFirst(PolicyConformance):
    """A dynamic one, which never swaps."""

    class Policy(SchedulingPolicy):
        def order(self, waiting, now):
            def rank(request):
                return (request.deadline or request.arrival + 20.0, request.arrival)

            return (request.request_id for request in sorted(waiting, key=rank))

        def swap(self, request):
            return False

    def make_policy(self):
        return self.Policy()


class TestChoosy(PolicyConformance):
    """It refuses some requests on arrival, as a policy may."""

    class Policy(SchedulingPolicy):
        def key(self, request):
            if request.priority > 3 and not request.preemptions:
                raise InvalidRequestError("not today", param="priority")
            return request.arrival

    def make_policy(self):
        return self.Policy()


def run_check(policy, check, **attributes):
    suite = type("Suite", (PolicyConformance,), {"make_policy": lambda self: policy(), **attributes})()
    getattr(suite, f"test_{check.replace(' ', '_')}")()


BROKEN = [
    (broken.ReadsTheScheduler, "only views are read", "but not '_sequence'"),
    (broken.MarksRequests, "only views are read", "may not change a request, but it sets 'preemptions'"),
    (broken.HasNoKeyForSome, "keys can be compared", "also for those without deadline, tenant or session"),
    (broken.HasKeysOfNoOrder, "keys can be compared", "NaN is no key"),
    (broken.CountsItsCalls, "keys are stable", "for the same request at the same time"),
    (broken.OrdersStrangers, "order names who waits", "'nobody', which does not wait or came twice"),
    (broken.OrdersTwice, "order names who waits", "each once"),
    (broken.OrdersViews, "order names who waits", "return request.request_id for each"),
    (broken.SortsInPlace, "order names who waits", "sort a copy, such as sorted(waiting, key=...)"),
    (broken.EndsTheDead, "victims run", "return the request_id of one of `running`"),
    (broken.TakesTheListApart, "victims run", "victim() changed the list"),
    (broken.SwapsPerhaps, "only views are read", "swap() must return True or False"),
    (broken.RaisesForStrangers, "requests live and end", "served() raised KeyError"),
    (broken.ForgetsTheLong, "requests live and end", "order() must name every waiting request sooner or later"),
    (broken.ForgetsTheLong, "nobody starves", "let waiting count"),
    (broken.LastInFirstOut, "nobody starves", "let waiting count"),
    (broken.StrictPriority, "nobody starves", "or set starves = True"),
    (broken.Chance, "the same calls get the same answers", "not from chance"),
    (broken.RemembersEverybody, "memory is bounded", "forget what you keep of a request"),
    (broken.ComparesAllWithAll, "decisions are fast", "order() of 1,000 waiting requests took"),
    (broken.AsksTheNetwork, "decisions are fast", "victim() among 1,000 running requests took"),
]


@pytest.mark.parametrize(("policy", "check", "words"), BROKEN)
def test_a_fault_is_found_and_explained(policy, check, words):
    with pytest.raises(AssertionError, match=re.escape(words)):
        run_check(policy, check)


def test_a_policy_may_say_that_it_starves():
    with pytest.raises(SkipTest, match="starves = True"):
        run_check(broken.StrictPriority, "nobody starves", starves=True)


def test_even_one_that_starves_lets_everybody_run_in_the_end():
    with pytest.raises(AssertionError):
        run_check(broken.ForgetsTheLong, "requests live and end", starves=True)


def test_a_policy_may_say_that_it_is_slow():
    run_check(broken.AsksTheNetwork, "decisions are fast", decision_ms=1000.0)


def test_the_life_in_the_suite_has_everything():
    """Forks, and preemptions of both kinds."""
    world = World(SchedulingPolicy())
    live_through(world, steps=80)
    assert any("#" in name for names in world.referee.answers if isinstance(names, list) for name in names)
    assert 0 < world.scheduler.swaps < world.scheduler.preemptions


def test_what_an_author_forgets_to_write():
    assert "define make_policy(self)" in run_suite(PolicyConformance())[0].message
