import asyncio
import random
import threading

import pytest
from helpers import expected_text, greedy, start_engine

from corelm.api import (
    DuplicateRequestError,
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    RequestFailedError,
    SchedulingPolicy,
    StartupError,
    StepResult,
)
from corelm.engine.async_engine import AsyncEngine
from corelm.testing import FakeExecutor, FakeTokenizer


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def at_rest(engine):
    await until(lambda: engine.stats().running == engine.stats().waiting == 0)
    assert engine.stats().free_blocks == engine.stats().total_blocks


class Gate:
    """Lets the executor's steps through one by one."""

    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, plan):
        self.reached.set()
        assert self.go.wait(20)

    async def wait_reached(self):
        await until(self.reached.is_set)
        self.reached.clear()


@pytest.fixture
async def engine():
    engine = await start_engine()
    yield engine
    await engine.stop()


async def test_streamed_and_whole_are_the_same(engine):
    streamed = [o async for o in await engine.generate("hello", greedy())]
    whole = await (await engine.generate("hello", greedy())).result()
    assert "".join(o.text for o in streamed) == whole.text == expected_text("hello")
    assert (whole.prompt_tokens, whole.completion_tokens, whole.finish_reason) == (5, 8, "length")
    assert sum(o.finish_reason is not None for o in streamed) == 1
    await at_rest(engine)


async def test_sixty_four_at_once_some_aborted_each_gets_its_own_text(engine):
    chance = random.Random(0)

    async def client(i):
        prompt = f"request number {i}"
        stream = await engine.generate(prompt, greedy(max_tokens=12))
        if i % 3 == 0:
            for _ in range(chance.randrange(3)):
                await anext(stream)
            stream.abort()
            return
        text = (await stream.result()).text if i % 2 else "".join([o.text async for o in stream])
        assert text == expected_text(prompt, 12)

    await asyncio.gather(*(client(i) for i in range(64)))
    await at_rest(engine)
    finished = engine.stats().finished
    assert sum(finished.values()) == 64


async def test_duplicate_live_id(engine):
    stream = await engine.generate("a", greedy(max_tokens=200), request_id="x")
    with pytest.raises(DuplicateRequestError):
        await engine.generate("b", greedy(), request_id="x")
    assert (await stream.result()).text == expected_text("a", 200)
    again = await engine.generate("b", greedy(), request_id="x")
    assert (await again.result()).text == expected_text("b")


async def test_cancel_then_resubmit_with_the_same_id(engine):
    for _ in range(300):
        await engine.generate("one", greedy(), request_id="x")
        engine.abort("x")
        stream = await engine.generate("two", greedy(max_tokens=3), request_id="x")
        assert (await stream.result()).text == expected_text("two", 3)


async def test_a_refused_request_leaves_nothing(engine):
    with pytest.raises(InvalidRequestError):
        await engine.generate("", greedy(), request_id="x")
    stream = await engine.generate("a", greedy(), request_id="x")
    assert (await stream.result()).finish_reason == "length"


async def test_third_party_abort_ends_the_stream(engine):
    stream = await engine.generate("a", greedy(max_tokens=250), request_id="x")
    first = await anext(stream)
    engine.abort("x")
    rest = [o async for o in stream]
    assert rest[-1].finish_reason == "abort"
    assert rest[-1].completion_tokens >= first.completion_tokens
    await at_rest(engine)


@pytest.mark.parametrize("when", ["during", "after"])
async def test_abort_around_the_last_step_gives_one_end(when):
    gate = Gate()
    engine = await start_engine(FakeExecutor(on_step=gate))
    stream = await engine.generate("a", greedy(max_tokens=1))
    await gate.wait_reached()
    if when == "during":
        stream.abort()
    gate.go.set()
    outputs = [o async for o in stream]
    stream.abort()
    assert [o.finish_reason for o in outputs] == ["abort" if when == "during" else "length"]
    await at_rest(engine)
    assert engine.stats().finished == {outputs[0].finish_reason: 1}
    await engine.stop()


async def test_queued_requests_can_be_aborted_in_any_order():
    engine = await start_engine(max_num_seqs=2)
    running = [await engine.generate(f"r{i}", greedy(max_tokens=100)) for i in range(2)]
    queued = [await engine.generate(f"q{i}", greedy(), request_id=f"q{i}") for i in range(20)]
    random.Random(1).shuffle(queued)
    for stream in queued:
        engine.abort(stream.request_id)
    assert [(await s.result()).text for s in running] == [expected_text(f"r{i}", 100) for i in range(2)]
    await at_rest(engine)
    await engine.stop()


async def test_executor_failure_ends_every_stream_and_turns_health_red():
    gate = Gate()

    def explode(plan):
        gate(plan)
        raise ZeroDivisionError("boom")

    engine = await start_engine(FakeExecutor(on_step=explode))
    streams = [await engine.generate("a", greedy()) for _ in range(3)]
    gate.go.set()
    for stream in streams:
        with pytest.raises(EngineDeadError, match="ZeroDivisionError: boom"):
            await stream.result()
    await engine.failed()
    assert engine.status == "errored"
    with pytest.raises(EngineDeadError):
        await engine.check_health()
    with pytest.raises(EngineDeadError):
        await engine.generate("a", greedy())
    assert engine.stats().running == engine.stats().waiting == 0
    await engine.stop()


async def test_iteration_timeout_ends_every_stream():
    gate = Gate()
    engine = await start_engine(FakeExecutor(on_step=gate), iteration_timeout_s=0.2)
    stream = await engine.generate("a", greedy())
    with pytest.raises(EngineDeadError, match=r"iteration timeout of 0\.2 s"):
        await stream.result()
    assert engine.status == "errored"
    gate.go.set()
    await engine.stop()


async def test_a_failed_sequence_does_not_touch_the_others():
    class Picky(FakeExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            bad = {s.seq_id: "bad luck" for s in plan.started if s.token_ids[0] == ord("!")}
            return StepResult(step_id=result.step_id, token_ids=result.token_ids, errors=bad)

    engine = await start_engine(Picky())
    good, bad = await engine.generate("a", greedy()), await engine.generate("!", greedy())
    with pytest.raises(RequestFailedError, match="bad luck"):
        await bad.result()
    assert (await good.result()).text == expected_text("a")
    await at_rest(engine)
    await engine.stop()


async def test_a_decoder_failure_does_not_touch_the_others():
    class Decoder:
        def push(self, token_ids):
            raise KeyError("no such token")

    class Broken(FakeTokenizer):
        fail = True

        def decoder(self, **options):
            self.fail = not self.fail
            return Decoder() if self.fail else super().decoder(**options)

    engine = await start_engine(tokenizer=Broken())
    good, bad = await engine.generate("a", greedy()), await engine.generate("b", greedy())
    with pytest.raises(RequestFailedError, match="could not be made"):
        await bad.result()
    assert (await good.result()).text == expected_text("a")
    assert engine.status == "ready"
    await at_rest(engine)
    await engine.stop()


@pytest.mark.parametrize("where", ["executor", "policy"])
async def test_nothing_freezes_the_event_loop(where):
    gate = Gate()

    class Frozen(SchedulingPolicy):
        def key(self, request):
            gate(None)
            return 0

    if where == "executor":
        engine = await start_engine(FakeExecutor(on_step=gate))
    else:
        engine = await start_engine(policy=Frozen())
    stream = await engine.generate("a", greedy())
    await gate.wait_reached()
    async with asyncio.timeout(0.5):
        await engine.check_health()
    gate.go.set()
    assert (await stream.result()).text == expected_text("a")
    await engine.stop()


async def test_unhealthy_executor_is_noticed_while_idle(monkeypatch):
    monkeypatch.setattr("corelm.engine.async_engine.IDLE_CHECK_S", 0.01)
    monkeypatch.setattr("corelm.engine.engine.HEALTH_INTERVAL_S", 0.0)
    executor = FakeExecutor()
    engine = await start_engine(executor)
    executor.unhealthy = RuntimeError("device lost")
    async with asyncio.timeout(5):
        await engine.failed()
    with pytest.raises(EngineDeadError, match="device lost"):
        await engine.check_health()
    await engine.stop()


async def test_draining_refuses_new_and_finishes_old():
    gate = Gate()
    engine = await start_engine(FakeExecutor(on_step=gate))
    stream = await engine.generate("a", greedy())
    engine.drain()
    with pytest.raises(EngineStoppedError, match="shutting down"):
        await engine.generate("b", greedy())
    gate.go.set()
    assert (await stream.result()).text == expected_text("a")
    await engine.stop()
    assert engine.status == "stopped"


async def test_stop_ends_streams_with_an_error_and_frees_the_executor():
    executor = FakeExecutor()
    engine = await start_engine(executor)
    stream = await engine.generate("a", greedy(max_tokens=250))
    await engine.stop()
    with pytest.raises(EngineStoppedError):
        await stream.result()
    await engine.stop()
    assert executor.shut_down >= 1


async def test_requests_before_the_model_is_loaded():
    engine = AsyncEngine(lambda progress: pytest.fail("not loaded"), names=["m"])
    assert engine.status == "starting"
    assert engine.model.max_model_len is None
    with pytest.raises(EngineStoppedError, match="loading"):
        await engine.generate("a", greedy())
    await engine.stop()


async def test_a_failed_load_is_a_startup_error():
    def load(progress):
        raise MemoryError("too large")

    engine = AsyncEngine(load, names=["m"])
    with pytest.raises(StartupError, match="MemoryError: too large"):
        await engine.start()
    assert engine.status == "errored"
    await engine.stop()


async def test_a_policy_that_lets_nobody_run_does_not_spin():
    calls = []

    class Never(SchedulingPolicy):
        def order(self, waiting, now):
            calls.append(now)
            return [] if len(calls) < 4 else [r.request_id for r in waiting]

    engine = await start_engine(policy=Never())
    stream = await engine.generate("a", greedy())
    assert (await stream.result()).text == expected_text("a")
    assert calls[3] - calls[0] > 0.02
    await engine.stop()
