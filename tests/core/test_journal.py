"""Events and timelines of whole requests, on the fake executor."""

import itertools

import pytest
from helpers import greedy, make_engine, start_engine
from hypothesis import given
from hypothesis import strategies as st

from corelm.api import (
    FirstToken,
    Observer,
    RequestFinished,
    RequestOptions,
    RequestPreempted,
    RequestQueued,
    RequestScheduled,
    StepFinished,
)
from corelm.engine.journal import Journal
from corelm.engine.observing import Observing
from corelm.testing import FakeExecutor


class Recorder(Observer):
    def __init__(self):
        self.all = []
        self.started, self.reasons, self.stopped = [], [], 0

    def engine_started(self, info):
        self.started.append(info)

    def events(self, batch):
        self.all += batch

    def engine_failed(self, reason):
        self.reasons.append(reason)

    def engine_stopped(self):
        self.stopped += 1

    def of(self, kind):
        return [event for event in self.all if isinstance(event, kind)]

    def story(self, request_id):
        return [type(event) for event in self.all if getattr(event, "request_id", None) == request_id]


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def observed(recorder):
    """Makes an engine whose clock ticks once each time it is read, and a function that runs it to the end."""

    def make(*args, **options):
        observing = Observing([("recorder", recorder)])
        engine = make_engine(*args, **options)
        ticks = itertools.count(1)
        engine.journal = Journal(observing, lambda: float(next(ticks)))

        def finish():
            while engine.has_work:
                engine.step()
            engine.journal.flush()
            observing.close()

        return engine, finish

    return make


def prepare(engine, name, prompt="hello", options=RequestOptions(), **params):  # noqa: B008 - frozen
    return engine.intake.prepare(prompt, greedy(**params), request_id=name, arrival=0.0, options=options)


def test_the_events_of_a_request(observed, recorder):
    engine, finish = observed()
    options = RequestOptions(tenant="t")
    engine.add(prepare(engine, "a", max_tokens=3, options=options))
    finish()
    assert recorder.story("a") == [RequestQueued, RequestScheduled, FirstToken, RequestFinished]
    [queued] = recorder.of(RequestQueued)
    assert (queued.prompt_tokens, queued.options) == (5, options)
    [ended] = recorder.of(RequestFinished)
    assert (ended.reason, ended.prompt_tokens, ended.cached_tokens, ended.completion_tokens) == ("length", 5, 0, 3)
    assert ended.options == options
    # Reading order: queued, planned, collected (three times both), ended.
    timeline = ended.timeline
    assert (timeline.queued, timeline.scheduled, timeline.first_token, timeline.finished) == (1.0, 2.0, 3.0, 8.0)
    assert (timeline.waiting_s, timeline.prefill_s, timeline.decode_s, timeline.preempted_s) == (2.0, 1.0, 5.0, 0.0)
    steps = recorder.of(StepFinished)
    assert [(step.step_id, step.sequences, step.tokens, step.seconds) for step in steps] == [
        (1, 1, 5, 1.0),
        (2, 1, 1, 1.0),
        (3, 1, 1, 1.0),
    ]
    times = [event.time for event in recorder.all]
    assert times == sorted(times)


def test_cached_tokens_are_told(observed, recorder):
    engine, finish = observed(FakeExecutor(block_size=4))
    prompt = list(range(40))
    engine.add(prepare(engine, "a", prompt))
    while engine.has_work:
        engine.step()
    engine.add(prepare(engine, "b", prompt))
    finish()
    assert [event.cached_tokens for event in recorder.of(RequestFinished)] == [0, 36]


def test_a_preempted_request_tells_how_long_it_stood_aside(observed, recorder):
    engine, finish = observed(FakeExecutor(num_blocks=4, block_size=4), prefix_cache=False)
    for name in "ab":
        engine.add(prepare(engine, name, "hey", max_tokens=10))
    finish()
    [preempted] = recorder.of(RequestPreempted)
    assert not preempted.swapped
    assert recorder.story(preempted.request_id) == [
        RequestQueued,
        RequestScheduled,
        FirstToken,
        RequestPreempted,
        RequestScheduled,
        RequestFinished,
    ]
    by_id = {event.request_id: event.timeline for event in recorder.of(RequestFinished)}
    victim = by_id.pop(preempted.request_id)
    [other] = by_id.values()
    assert victim.preemptions == 1
    assert victim.preempted_s > 0
    assert other.preempted_s == other.preemptions == 0
    for timeline in (victim, other):
        parts = timeline.waiting_s + timeline.prefill_s + timeline.decode_s + timeline.preempted_s
        assert parts == pytest.approx(timeline.finished - timeline.arrival)


def test_a_swapped_request_says_so(observed, recorder):
    engine, finish = observed(FakeExecutor(num_blocks=4, block_size=4, num_swap_blocks=8), prefix_cache=False)
    for name in "ab":
        engine.add(prepare(engine, name, "hey", max_tokens=10))
    finish()
    assert [event.swapped for event in recorder.of(RequestPreempted)] == [True]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3), st.integers(0, 40)), min_size=1, max_size=8))
def test_whatever_happens_every_request_has_one_end_and_its_parts_add_up(requests):
    recorder = Recorder()
    observing = Observing([("recorder", recorder)])
    engine = make_engine(FakeExecutor(num_blocks=8, block_size=4, num_swap_blocks=4))
    engine.journal = Journal(observing, itertools.count(1).__next__)
    prepared = [
        (prepare(engine, str(i), max_tokens=tokens, n=n), steps) for i, (tokens, n, steps) in enumerate(requests)
    ]
    for request, _ in prepared:
        engine.add(request)
    for step in range(1000):
        engine.abort(request.number for request, abort_at in prepared if abort_at == step)
        if not engine.has_work:
            break
        engine.step()
    engine.journal.flush()
    observing.close()
    ends = recorder.of(RequestFinished)
    assert sorted(end.request_id for end in ends) == sorted(str(i) for i in range(len(requests)))
    for end in ends:
        timeline = end.timeline
        parts = timeline.waiting_s + timeline.prefill_s + timeline.decode_s + timeline.preempted_s
        assert parts == timeline.finished
        story = recorder.story(end.request_id)
        assert (story[0], story[-1]) == (RequestQueued, RequestFinished)
        assert story.count(RequestPreempted) == timeline.preemptions
        assert story.count(FirstToken) == (timeline.first_token is not None)


@pytest.mark.parametrize("params", [{"n": 3, "temperature": 1.0}, {"n": 2, "best_of": 3, "temperature": 1.0}])
def test_several_choices_are_one_request(observed, recorder, params):
    engine, finish = observed()
    engine.add(prepare(engine, "a", max_tokens=4, ignore_eos=True, **params))
    finish()
    assert recorder.story("a") == [RequestQueued, RequestScheduled, FirstToken, RequestFinished]
    assert recorder.of(RequestFinished)[0].completion_tokens == 4 * 3
    assert {event.request_id for event in recorder.all if not isinstance(event, StepFinished)} == {"a"}


def test_an_aborted_request_has_an_end_wherever_it_is(observed, recorder):
    engine, finish = observed(max_num_seqs=1)
    first, second = prepare(engine, "runs", max_tokens=50), prepare(engine, "waits", max_tokens=50)
    engine.add(first)
    engine.add(second)
    engine.step()
    engine.abort([second.number, first.number])
    finish()
    assert recorder.story("waits") == [RequestQueued, RequestFinished]
    assert recorder.story("runs") == [RequestQueued, RequestScheduled, FirstToken, RequestFinished]
    assert [event.reason for event in recorder.of(RequestFinished)] == ["abort", "abort"]
    waited = recorder.of(RequestFinished)[0].timeline
    assert (waited.scheduled, waited.first_token) == (None, None)
    assert waited.waiting_s == waited.finished


def test_nothing_is_kept_when_nobody_observes():
    engine = make_engine()
    observing = Observing()
    engine.journal = Journal(observing, lambda: pytest.fail("the clock was read"))
    engine.add(prepare(engine, "a"))
    while engine.has_work:
        engine.step()
    engine.journal.flush()


async def test_the_engine_tells_of_its_own_life(recorder):
    engine = await start_engine(observing=Observing([("recorder", recorder)]))
    await (await engine.generate("hello", greedy(), request_id="a")).result()
    await engine.stop()
    [info] = recorder.started
    assert (info.model.names, info.executor) == (("fake",), engine.info)
    assert (recorder.reasons, recorder.stopped) == ([], 1)


async def test_the_engine_tells_that_it_failed(recorder):
    def fail(plan):
        raise ValueError("broken")

    engine = await start_engine(FakeExecutor(on_step=fail), observing=Observing([("recorder", recorder)]))
    stream = await engine.generate("hello", greedy())
    await engine.failed()
    await engine.stop()
    assert recorder.reasons == ["the engine failed: ValueError: broken"]
    assert recorder.stopped == 1
    assert stream.finished


@pytest.mark.parametrize("swap", [0, 40])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_preemption_is_told_and_counted(observed, recorder, depth, swap):
    executor = FakeExecutor(num_blocks=12, num_swap_blocks=swap, pipeline_depth=depth)
    engine, finish = observed(executor)
    for index in range(6):
        engine.add(prepare(engine, str(index), f"prompt {index}", max_tokens=20))
    finish()
    preemptions = engine.snapshot().preemptions
    assert preemptions > 0
    assert len(recorder.of(RequestPreempted)) == preemptions
    finished = recorder.of(RequestFinished)
    assert sum(event.timeline.preemptions for event in finished) == preemptions
    for event in finished:
        parts = event.timeline
        total = parts.waiting_s + parts.prefill_s + parts.decode_s + parts.preempted_s
        assert total == pytest.approx(parts.finished - parts.arrival)


def test_a_group_is_preempted_when_none_of_it_runs(observed, recorder):
    engine, finish = observed(FakeExecutor(num_blocks=14))
    engine.add(prepare(engine, "group", "the beginning that they share", n=5, max_tokens=24, temperature=1.0, seed=7))
    finish()
    assert engine.snapshot().preemptions > 0
    assert recorder.of(RequestPreempted) == []
