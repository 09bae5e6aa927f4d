"""Preemption that keeps keys and values in host memory."""

import pytest
from helpers import expected_text, make_engine
from test_scheduler import drive, submit

from corelm.api import SchedulingPolicy
from corelm.testing import FakeExecutor


class NeverSwap(SchedulingPolicy):
    def swap(self, request):
        return False


def crowd(executor, policy=None, count=6, tokens=20, **options):
    engine = make_engine(executor, policy, **options)
    prompts = [f"prompt {i}" for i in range(count)]
    requests = [submit(engine, prompt, str(i), max_tokens=tokens) for i, prompt in enumerate(prompts)]
    texts, _ = drive(engine, requests)
    assert texts == {str(i): expected_text(prompt, tokens) for i, prompt in enumerate(prompts)}
    return engine


def recomputed(plans):
    """Tokens computed by sequences that were started again, beyond the one that must be."""
    seen, again = set(), 0
    for plan in plans:
        restarted = {start.seq_id for start in plan.started if start.seq_id in seen}
        seen |= {start.seq_id for start in plan.started}
        again += sum(item.num_tokens - 1 for item in plan.slices if item.seq_id in restarted)
    return again


@pytest.mark.parametrize("depth", [1, 2])
def test_what_was_swapped_out_is_not_computed_again(depth):
    plans = []
    executor = FakeExecutor(num_blocks=12, num_swap_blocks=50, pipeline_depth=depth, on_step=plans.append)
    engine = crowd(executor, prefix_cache=False)
    assert engine.snapshot().preemptions > 0
    assert sum(len(plan.swap_out) for plan in plans) == sum(len(plan.swap_in) for plan in plans) > 0
    assert recomputed(plans) == 0


def test_without_room_to_swap_victims_are_computed_anew():
    plans = []
    engine = crowd(FakeExecutor(num_blocks=12, num_swap_blocks=1, on_step=plans.append), prefix_cache=False)
    assert engine.snapshot().preemptions > 0
    assert not any(plan.swap_out for plan in plans)
    assert recomputed(plans) > 0


def test_the_policy_decides_whether_to_swap():
    plans = []
    engine = crowd(FakeExecutor(num_blocks=12, num_swap_blocks=50, on_step=plans.append), NeverSwap())
    assert engine.snapshot().preemptions > 0
    assert not any(plan.swap_out for plan in plans)


def test_what_is_still_shared_is_not_swapped_in():
    """Two sequences with one long beginning: the one that comes back finds the other's blocks."""
    plans = []
    executor = FakeExecutor(num_blocks=20, num_swap_blocks=50, on_step=plans.append)
    engine = make_engine(executor)
    beginning = "a long beginning that both of them have"
    requests = [submit(engine, beginning + name, name, max_tokens=30) for name in "ab"]
    texts, _ = drive(engine, requests)
    assert texts == {name: expected_text(beginning + name, 30) for name in "ab"}
    assert engine.snapshot().preemptions > 0
    shared = len(beginning) // 4
    assert all(len(plan.swap_in) <= len(plan.swap_out) or len(plan.swap_in) < shared for plan in plans)


def test_swap_blocks_come_back_when_a_swapped_request_is_aborted():
    engine = make_engine(FakeExecutor(num_blocks=8, num_swap_blocks=20))
    requests = [submit(engine, "12345678", name, max_tokens=20) for name in "ab"]
    while not engine._scheduler.swaps:
        engine.step()
    engine.abort([request.number for request in requests])
    engine.check_integrity()
    assert engine._scheduler.memory.swap_pool.num_free == 20


@pytest.mark.parametrize("swap", [0, 1000])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_resuming_does_not_thrash(swap, prefix_cache):
    """Many long outputs in a pool for a few: a sequence that comes back stays long enough to be worth it."""
    executor = FakeExecutor(num_blocks=64, num_swap_blocks=swap)
    engine = crowd(executor, count=30, tokens=60, prefix_cache=prefix_cache)
    assert 0 < engine.snapshot().preemptions < 60


def test_the_next_step_is_submitted_before_the_last_one_is_collected():
    class Logged(FakeExecutor):
        log = []

        def submit(self, plan):
            self.log.append(f"submit {plan.step_id}")
            return super().submit(plan)

        def collect(self, handle):
            self.log.append(f"collect {handle.step_id}")
            return super().collect(handle)

    engine = make_engine(Logged(pipeline_depth=2))
    drive(engine, [submit(engine, "hello", "a", max_tokens=4)])
    assert Logged.log == [
        *["submit 1", "submit 2", "collect 1", "submit 3", "collect 2", "submit 4", "collect 3", "collect 4"]
    ]


def test_what_was_planned_past_a_stop_is_dropped():
    plans = []
    engine = make_engine(FakeExecutor(pipeline_depth=2, on_step=plans.append))
    text = expected_text("hello", 8)
    texts, _ = drive(engine, [submit(engine, "hello", "a", max_tokens=None, stop=(text[3],))])
    assert texts["a"] == text[: text.index(text[3])]
    assert engine.snapshot().free_blocks == engine.snapshot().total_blocks
