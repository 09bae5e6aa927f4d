import pytest
from corelm_fcfs import Priority
from hypothesis import given
from hypothesis import strategies as st


def ordered(policy, requests):
    return [request.request_id for request in sorted(requests, key=policy.key)]


def test_the_smallest_number_runs_first_then_who_came_first(view):
    requests = [view("a", 1.0, priority=2), view("b", 3.0), view("c", 2.0), view("d", 4.0, priority=-1)]
    assert ordered(Priority(), requests) == ["d", "c", "b", "a"]
    assert Priority().victim(requests, 5.0) == "a"


def test_without_ageing_a_level_outweighs_any_wait(view):
    assert ordered(Priority(), [view("old", 0.0, priority=1), view("new", 1e9)]) == ["new", "old"]


def test_waiting_raises_a_request_by_a_level_every_so_many_seconds(view):
    old = view("old", 100.0, priority=1)
    assert ordered(Priority(10.0), [old, view("new", 109.0)]) == ["new", "old"]
    assert ordered(Priority(10.0), [old, view("new", 110.0)]) == ["old", "new"]
    assert Priority(10.0).victim([old, view("new", 111.0)], 112.0) == "new"


def test_equal_requests_have_equal_keys(view):
    assert Priority(3.0).key(view("a", 1.5, priority=4)) == Priority(3.0).key(view("b", 1.5, priority=4))


@pytest.mark.parametrize("priority", [-(2**31), 2**31 - 1])
def test_extreme_priorities_keep_their_order(view, priority):
    assert Priority().key(view("a", 0.0, priority=priority)) < Priority().key(view("b", 0.0, priority=priority + 1))


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 100)), min_size=2, max_size=8),
    st.integers(1, 20),
    st.integers(100, 1000),
)
def test_the_fixed_key_gives_the_order_of_aged_priorities_at_every_moment(view, requests, ageing_s, now):
    views = [view(str(i), float(arrival), priority=priority) for i, (priority, arrival) in enumerate(requests)]
    aged = sorted(views, key=lambda r: (ageing_s * r.priority - (now - r.arrival), r.arrival))
    found = sorted(views, key=Priority(float(ageing_s)).key)

    def standing(view):
        return ageing_s * view.priority - (now - view.arrival)

    assert [standing(view) for view in found] == [standing(view) for view in aged]
