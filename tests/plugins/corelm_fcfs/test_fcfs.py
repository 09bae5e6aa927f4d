from corelm_fcfs import FCFS


def test_who_came_first_runs_first_and_who_came_last_gives_way(view):
    requests = [view("late", 3.0, priority=-5), view("early", 1.0, priority=5), view("middle", 2.0)]
    assert [r.request_id for r in sorted(requests, key=FCFS().key)] == ["early", "middle", "late"]
    assert FCFS().victim(requests, 4.0) == "late"
