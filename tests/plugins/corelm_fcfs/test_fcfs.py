from types import SimpleNamespace

from corelm_fcfs import FCFS, Priority


def view(request_id, arrival, priority=0):
    return SimpleNamespace(request_id=request_id, arrival=arrival, priority=priority)


VIEWS = [view("a", 1.0, 2), view("b", 2.0, 0), view("c", 3.0, 0)]


def order(policy):
    return [v.request_id for v in sorted(VIEWS, key=policy.key)]


def test_order():
    assert order(FCFS()) == ["a", "b", "c"]
    assert order(Priority()) == ["b", "c", "a"]


def test_the_last_in_order_gives_way():
    assert FCFS().victim(VIEWS, 4.0) == "c"
    assert Priority().victim(VIEWS, 4.0) == "a"
