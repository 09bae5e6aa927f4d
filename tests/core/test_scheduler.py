"""The scheduler, driven through the engine with an executor that notices every wrong plan."""

import itertools

import pytest
from corelm_fcfs import Priority
from helpers import expected_text, greedy, make_engine

from corelm.api import PolicyError, RequestOptions, SchedulingPolicy
from corelm.scheduler.waiting import WaitingQueue
from corelm.testing import FakeExecutor

ARRIVALS = itertools.count()


def drive(engine, requests, limit=10_000):
    """Run to the end; returns texts and the order of finishing."""
    texts, order = {r.request_id: "" for r in requests}, []
    by_seq = {r.number: r.request_id for r in requests}
    for _ in range(limit):
        if not engine.has_work:
            return texts, order
        for seq_id, output in engine.step():
            texts[by_seq[seq_id]] += output.text
            if output.finish_reason:
                order.append(by_seq[seq_id])
        engine.check_integrity()
    raise AssertionError("no progress")


def submit(engine, prompt, name, **options):
    wishes = RequestOptions(priority=options.pop("priority", 0))
    request = engine.intake.prepare(
        prompt, greedy(**options), request_id=name, arrival=float(next(ARRIVALS)), options=wishes
    )
    engine.add(request)
    return request


@pytest.mark.parametrize("budget", [1, 7, 64])
def test_chunked_prefill_and_batching_do_not_change_the_text(budget):
    executor = FakeExecutor(max_num_batched_tokens=budget)
    engine = make_engine(executor, max_num_batched_tokens=budget)
    prompts = [f"prompt {i} " * (i + 1) for i in range(5)]
    requests = [submit(engine, p, str(i)) for i, p in enumerate(prompts)]
    texts, _ = drive(engine, requests)
    assert texts == {str(i): expected_text(p) for i, p in enumerate(prompts)}
    assert engine.snapshot().free_blocks == engine.snapshot().total_blocks


def test_a_decode_is_not_held_up_by_a_long_prompt():
    plans = []
    engine = make_engine(FakeExecutor(on_step=plans.append), max_num_batched_tokens=8)
    first = submit(engine, "hi", "first", max_tokens=10)
    engine.step()
    second = submit(engine, "x" * 40, "second")
    engine.step()
    assert {(s.seq_id, s.num_tokens) for s in plans[-1].slices} == {(first.number, 1), (second.number, 7)}


def test_preemption_keeps_every_text():
    executor = FakeExecutor(num_blocks=12)
    engine = make_engine(executor)
    prompts = [f"prompt {i}" for i in range(6)]
    requests = [submit(engine, p, str(i), max_tokens=20) for i, p in enumerate(prompts)]
    texts, order = drive(engine, requests)
    assert engine.snapshot().preemptions > 0
    assert texts == {str(i): expected_text(p, 20) for i, p in enumerate(prompts)}
    assert order[0] == "0"


def test_a_request_that_outgrows_the_pool_alone_ends_with_length():
    engine = make_engine(FakeExecutor(num_blocks=4))
    request = submit(engine, "12345678", "a", max_tokens=None)
    texts, order = drive(engine, [request])
    assert order == ["a"]
    assert texts["a"] == expected_text("12345678", 8)


def test_an_urgent_request_takes_the_blocks_of_one_already_planned():
    """The victim may stand in the step already; it must leave it."""
    engine = make_engine(FakeExecutor(num_blocks=8), Priority())
    low = submit(engine, "l" * 10, "low", priority=5, max_tokens=20)
    engine.step()
    high = submit(engine, "h" * 10, "high", priority=-5, max_tokens=20)
    texts, order = drive(engine, [low, high])
    assert order == ["high", "low"]
    assert engine.snapshot().preemptions > 0
    assert texts["high"] == expected_text("h" * 10, 20)
    assert texts["low"].endswith(expected_text("l" * 10, 20)[1:])


def test_priority_orders_the_waiting_and_ties_go_by_arrival():
    engine = make_engine(policy=Priority(), max_num_seqs=1)
    requests = [submit(engine, "p", name, priority=p) for name, p in [("a", 1), ("b", 0), ("c", 0), ("d", -1)]]
    assert drive(engine, requests)[1] == ["d", "b", "c", "a"]


def test_a_dynamic_policy_orders_by_ids():
    class Backwards(SchedulingPolicy):
        def order(self, waiting, now):
            return [request.request_id for request in reversed(waiting)]

    engine = make_engine(policy=Backwards(), max_num_seqs=1)
    requests = [submit(engine, "p", name) for name in "abc"]
    assert drive(engine, requests)[1] == ["c", "b", "a"]


@pytest.mark.parametrize("answer", [["nobody"], ["a", "a"]])
def test_nonsense_from_a_policy_is_an_error_that_names_it(answer):
    class Confused(SchedulingPolicy):
        def order(self, waiting, now):
            return answer

    engine = make_engine(policy=Confused())
    submit(engine, "p", "a")
    with pytest.raises(PolicyError, match="Confused"):
        engine.step()


def test_views_are_read_only():
    seen = []

    class Curious(SchedulingPolicy):
        def key(self, request):
            seen.append(request)
            return request.arrival

    engine = make_engine(policy=Curious())
    submit(engine, "abc", "a", priority=3)
    view = seen[0]
    assert (view.request_id, view.prompt_tokens, view.output_tokens, view.max_tokens) == ("a", 3, 0, 8)
    assert (view.priority, view.num_blocks, view.preemptions, view.tenant) == (3, 0, 0, None)
    with pytest.raises(AttributeError):
        view.priority = 0


def test_abort_of_waiting_running_unknown_and_finished():
    engine = make_engine(max_num_seqs=1)
    running, waiting = submit(engine, "a", "a"), submit(engine, "b", "b")
    engine.step()
    engine.abort([waiting.number, waiting.number, 12345])
    engine.abort([running.number])
    engine.check_integrity()
    assert not engine.has_work
    assert engine.snapshot().free_blocks == engine.snapshot().total_blocks


@pytest.mark.parametrize("swap", [0, 40])
def test_what_a_preemption_makes_necessary_again_is_not_charged(swap):
    class Accountant(SchedulingPolicy):
        def __init__(self):
            self.prompt, self.output = {}, {}

        def served(self, work):
            for request, prompt_tokens, output_tokens in work:
                name = request.request_id
                self.prompt[name] = self.prompt.get(name, 0) + prompt_tokens
                self.output[name] = self.output.get(name, 0) + output_tokens

    policy = Accountant()
    engine = make_engine(FakeExecutor(num_blocks=16, num_swap_blocks=swap), policy, max_num_batched_tokens=8)
    prompts = {str(i): f"prompt {i} " * 3 for i in range(6)}
    requests = [submit(engine, prompt, name, max_tokens=20) for name, prompt in prompts.items()]
    drive(engine, requests)
    assert engine.snapshot().preemptions > 0
    cached = sum(request.first.cached_tokens for request in requests)
    assert sum(policy.prompt.values()) == sum(map(len, prompts.values())) - cached
    assert set(policy.output.values()) == {20}


def test_many_that_leave_do_not_fill_the_queue():
    engine = make_engine(max_num_seqs=1)
    submit(engine, "p", "first")
    engine.step()
    for i in range(2000):
        request = submit(engine, "p", str(i))
        engine.abort([request.number])
    assert len(engine._scheduler._waiting._heap) < 200


def test_a_sequence_that_waits_again_goes_by_its_new_key():
    queue = WaitingQueue(on_incomparable=lambda error: None)
    engine = make_engine()
    first, second = (
        engine.intake.prepare("p", greedy(), request_id=name, arrival=0.0).first for name in ("first", "second")
    )
    first.key, second.key = 1, 2
    queue.push(first)
    queue.push(second)
    queue.remove(first)
    first.key = 3
    queue.push(first)
    assert queue.peek() is second
