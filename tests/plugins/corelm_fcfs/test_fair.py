import pytest
from corelm_fcfs import Fair, FairSettings

from corelm.api import ServedTokens


@pytest.fixture
def policy():
    return Fair(FairSettings())


def arrive(policy, *requests):
    for request in requests:
        policy.key(request)


def order(policy, *waiting):
    return list(policy.order(waiting, 0.0))


def serve(policy, request, prompt_tokens=0, output_tokens=0):
    policy.served([ServedTokens(request, prompt_tokens, output_tokens)])


def test_who_was_given_least_goes_first(policy, view):
    served = view("x", tenant="a")
    waiting = [view("a", 1.0, "a"), view("b", 2.0, "b")]
    arrive(policy, served, *waiting)
    assert order(policy, *waiting) == ["a", "b"]
    serve(policy, served, prompt_tokens=1)
    assert order(policy, *waiting) == ["b", "a"]


def test_output_tokens_count_double(policy, view):
    a, b, c = view("a", 1.0, "a"), view("b", 2.0, "b"), view("c", 3.0, "c")
    running = [view(f"{tenant}0", 0.0, tenant) for tenant in "abc"]
    arrive(policy, *running, a, b, c)
    policy.served([ServedTokens(running[0], 0, 10), ServedTokens(running[1], 19, 0), ServedTokens(running[2], 21, 0)])
    assert order(policy, a, b, c) == ["b", "a", "c"]


def test_the_weights_can_be_set(view):
    policy = Fair(FairSettings(input_weight=3, output_weight=1, weights={"b": 2}))
    a, b = view("a", 1.0, "a"), view("b", 2.0, "b")
    arrive(policy, a, b, view("a0", tenant="a"), view("b0", tenant="b"))
    serve(policy, view("a0", tenant="a"), prompt_tokens=10)
    serve(policy, view("b0", tenant="b"), output_tokens=59)
    assert order(policy, a, b) == ["b", "a"]
    serve(policy, view("b0", tenant="b"), output_tokens=2)
    assert order(policy, a, b) == ["a", "b"]


def test_tenants_take_turns_within_one_step(policy, view):
    waiting = [view(f"a{i}", 1.0 + i, "a", prompt_tokens=10) for i in range(4)]
    waiting += [view("b0", 8.0, "b", prompt_tokens=20), view("b1", 9.0, "b")]
    arrive(policy, *waiting)
    assert order(policy, *waiting) == ["a0", "b0", "a1", "a2", "b1", "a3"]


def test_cached_tokens_are_free(policy, view):
    waiting = [view(f"a{i}", 1.0 + i, "a", prompt_tokens=10, cached_prefix_tokens=9) for i in range(4)]
    waiting += [view(f"b{i}", 8.0 + i, "b", prompt_tokens=3) for i in range(2)]
    arrive(policy, *waiting)
    assert order(policy, *waiting) == ["a0", "b0", "a1", "a2", "a3", "b1"]


def test_requests_that_nobody_takes_are_not_looked_up(policy, view):
    class Costly(view):
        @property
        def cached_prefix_tokens(self):
            raise AssertionError("this takes time")

        @cached_prefix_tokens.setter
        def cached_prefix_tokens(self, value):
            pass

    waiting = [Costly("a0", 1.0, "a"), Costly("a1", 2.0, "a"), Costly("b0", 3.0, "b")]
    arrive(policy, *waiting)
    assert next(iter(policy.order(waiting, 0.0))) == "a0"


def test_no_tenant_is_one_tenant(policy, view):
    waiting = [view("x", 1.0), view("y", 2.0), view("a", 3.0, "a")]
    arrive(policy, *waiting)
    assert order(policy, *waiting) == ["x", "a", "y"]


def test_the_choices_of_a_request_have_a_total_order(policy, view):
    waiting = [view(f"x-{i}", 1.0, "a", prompt_tokens=4, cached_prefix_tokens=4) for i in range(3)]
    waiting += [view("y", 1.0, "b")]
    arrive(policy, *waiting)
    assert sorted(order(policy, *waiting)) == ["x-0", "x-1", "x-2", "y"]
    assert policy.victim(waiting, 0.0) in {"x-0", "x-1", "x-2", "y"}


def test_the_latest_request_of_the_largest_counter_gives_way(policy, view):
    running = [view("a0", 1.0, "a"), view("a1", 2.0, "a"), view("b0", 3.0, "b")]
    arrive(policy, *running)
    serve(policy, running[0], prompt_tokens=8)
    assert policy.victim(running, 0.0) == "a1"
    serve(policy, running[2], prompt_tokens=9)
    assert policy.victim(running, 0.0) == "b0"


def test_who_comes_back_is_lifted_to_the_smallest_counter_that_waits(policy, view):
    a, b, c = view("a0", 1.0, "a"), view("b0", 2.0, "b"), view("c0", 3.0, "c")
    arrive(policy, a, b, c)
    serve(policy, a, prompt_tokens=1)
    serve(policy, view("b1", tenant="b"), prompt_tokens=100)
    serve(policy, view("c1", tenant="c"), prompt_tokens=200)
    order(policy, b, c)
    back = view("a1", 4.0, "a")
    arrive(policy, back)
    assert order(policy, b, c, back) == ["b0", "a1", "c0"], "a tie, which goes by arrival"
    serve(policy, view("a2", tenant="a"), prompt_tokens=50)
    assert order(policy, b, c, back) == ["b0", "a1", "c0"], "it stands between the two"


def test_a_tenant_that_waits_is_not_lifted(policy, view):
    a, b = view("a0", 2.0, "a"), view("b0", 1.0, "b")
    arrive(policy, a, b)
    serve(policy, view("b1", tenant="b"), prompt_tokens=100)
    more = view("a1", 3.0, "a", prompt_tokens=60)
    arrive(policy, more)
    last = view("a2", 4.0, "a")
    arrive(policy, last)
    assert order(policy, b, a, more, last) == ["a0", "a1", "a2", "b0"], "its credit of 100 lasts for 8 and 60"


def test_when_nobody_waits_the_floor_is_the_last_that_did(policy, view):
    a, b = view("a0", 1.0, "a"), view("b0", 2.0, "b")
    arrive(policy, a, b)
    order(policy, a, b)
    serve(policy, a, prompt_tokens=10)
    serve(policy, b, prompt_tokens=50)
    serve(policy, b, output_tokens=25)
    a, b, c = view("a1", 4.0, "a"), view("b1", 5.0, "b"), view("c0", 3.0, "c")
    arrive(policy, c, a, b)
    assert order(policy, c, a, b) == ["c0", "a1", "b1"], "all three stand at 100"


def test_debts_are_kept(policy, view):
    a, b = view("a0", 1.0, "a"), view("b0", 2.0, "b")
    arrive(policy, a, b)
    serve(policy, a, prompt_tokens=500)
    order(policy, b)
    back = view("a1", 0.5, "a")
    arrive(policy, back)
    assert order(policy, back, b) == ["b0", "a1"]


def test_an_aborted_request_does_not_count_as_waiting_for_ever(policy, view):
    aborted, b = view("a0", 2.0, "a"), view("b0", 1.0, "b")
    arrive(policy, aborted, b)
    order(policy, b)
    serve(policy, view("b1", tenant="b"), prompt_tokens=100)
    waiting = [b, view("a1", 3.0, "a", prompt_tokens=60), view("a2", 4.0, "a")]
    arrive(policy, *waiting[1:])
    assert order(policy, *waiting) == ["b0", "a1", "a2"]


def test_a_preempted_request_waits_again(policy, view):
    a, b = view("a0", 2.0, "a"), view("b0", 1.0, "b")
    arrive(policy, a)
    serve(policy, a, prompt_tokens=8)
    arrive(policy, b, a)
    assert order(policy, b, a) == ["b0", "a0"]
    serve(policy, view("b1", tenant="b"), prompt_tokens=9)
    assert order(policy, b, a) == ["a0", "b0"]


def test_tenants_that_come_once_are_forgotten(policy, view):
    for i in range(1000):
        request = view(f"r{i}", float(i), f"tenant {i}")
        arrive(policy, request)
        assert order(policy, request) == [f"r{i}"]
        serve(policy, request, prompt_tokens=8 + i % 5, output_tokens=3)
    assert len(policy._counters) < 10
    assert not policy._waiting
