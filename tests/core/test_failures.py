"""What plugins raise or answer wrongly, at every point: each has one outcome, and nobody waits for ever."""

import asyncio
import concurrent.futures
import threading

import pytest
from helpers import expected_text, greedy, make_engine, start_engine

from corelm.api import (
    CorelmError,
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    ModelLoadError,
    RequestFailedError,
    SchedulingPolicy,
    StartupError,
    StepResult,
)
from corelm.engine.async_engine import AsyncEngine
from corelm.testing import FakeExecutor, FakeTokenizer

ESCAPES = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(),
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    TimeoutError("slow"),
]


def by_name(error):
    return f"{type(error).__module__}.{type(error).__name__}"


@pytest.fixture(autouse=True)
def deadline():
    """A hang is a failure."""
    threads = threading.active_count()
    yield
    assert threading.active_count() <= threads + 8


@pytest.mark.parametrize("error", ESCAPES, ids=by_name)
async def test_whatever_a_step_raises_turns_health_red(error):
    def explode(plan):
        raise error

    engine = await start_engine(FakeExecutor(on_step=explode))
    stream = await engine.generate("a", greedy())
    async with asyncio.timeout(5):
        with pytest.raises(EngineDeadError, match=type(error).__name__):
            await stream.result()
        await engine.failed()
    await engine.stop()


@pytest.mark.parametrize("error", ESCAPES, ids=by_name)
async def test_whatever_a_tokenizer_raises_fails_one_request(error):
    class Broken(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            if text == "evil":
                raise error
            return super().encode(text)

    engine = await start_engine(tokenizer=Broken())
    async with asyncio.timeout(5):
        with pytest.raises(Exception, match=r".*"):
            await engine.generate("evil", greedy())
        assert (await (await engine.generate("a", greedy())).result()).text == expected_text("a")
    assert engine.status == "ready"
    await engine.stop()


async def test_a_token_that_only_the_tokenizer_knows_is_refused():
    class Wide(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            return [299]

    engine = await start_engine(tokenizer=Wide())
    with pytest.raises(InvalidRequestError, match="299"):
        await engine.generate("x", greedy())
    await engine.stop()


@pytest.mark.parametrize("answer", [[[]], [[1], [2]], []])
async def test_a_result_that_does_not_fit_the_plan_is_an_engine_failure(answer):
    class Wrong(FakeExecutor):
        def execute(self, plan):
            return StepResult(step_id=plan.step_id, token_ids=answer)

    engine = await start_engine(Wrong())
    stream = await engine.generate("a", greedy())
    with pytest.raises(EngineDeadError, match="executor"):
        await stream.result()
    await engine.stop()


async def test_the_executor_is_freed_after_a_failure():
    def explode(plan):
        raise ZeroDivisionError

    executor = FakeExecutor(on_step=explode)
    engine = await start_engine(executor)
    with pytest.raises(EngineDeadError):
        await (await engine.generate("a", greedy())).result()
    await engine.stop()
    assert executor.shut_down == 1


async def test_the_executor_is_freed_when_stopped_while_loading():
    executor, gate, freed = FakeExecutor(), threading.Event(), threading.Event()
    executor.shutdown = freed.set

    def load(progress):
        assert gate.wait(10)
        return make_engine(executor)

    engine = AsyncEngine(load)
    starting = asyncio.create_task(engine.start())
    await asyncio.sleep(0)
    await engine.stop()
    gate.set()
    await starting
    assert await asyncio.to_thread(freed.wait, 5)
    assert engine.status == "stopped"
    with pytest.raises(StartupError, match="once"):
        await engine.start()


async def test_stop_while_tokenising_is_an_error_not_a_cancellation():
    gate = threading.Event()

    class Slow(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            assert gate.wait(10)
            return super().encode(text)

    engine = await start_engine(tokenizer=Slow())
    tasks = [asyncio.create_task(engine.generate("a", greedy())) for _ in range(4)]
    await asyncio.sleep(0.01)
    await engine.stop()
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, EngineStoppedError) for result in results), results


async def test_leaving_the_loop_early_aborts():
    engine = await start_engine()
    async for _ in await engine.generate("a", greedy(max_tokens=250)):
        break
    await asyncio.sleep(0)  # the loop's generator is closed by a task of its own
    await asyncio.sleep(0)
    assert engine.stats().finished == {"abort": 1}
    await engine.stop()


async def test_result_twice_and_two_consumers_are_clear_errors():
    engine = await start_engine()
    stream = await engine.generate("a", greedy())
    await stream.result()
    with pytest.raises(CorelmError, match="read already"):
        await stream.result()
    gate = threading.Event()
    slow = await start_engine(FakeExecutor(on_step=lambda plan: gate.wait(10)))
    stream = await slow.generate("a", greedy())
    first = asyncio.create_task(stream.result())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one consumer"):
        await anext(stream)
    gate.set()
    assert (await first).text == expected_text("a")
    await engine.stop()
    await slow.stop()


async def test_an_error_of_a_policy_reaches_the_client_whole():
    class Strict(SchedulingPolicy):
        def key(self, request):
            raise InvalidRequestError("not today", param="priority", code="closed")

    engine = await start_engine(policy=Strict())
    stream = await engine.generate("a", greedy())
    with pytest.raises(InvalidRequestError, match="not today") as caught:
        await stream.result()
    assert (caught.value.param, caught.value.code) == ("priority", "closed")
    assert engine.status == "ready"
    await engine.stop()


async def test_what_was_taken_but_not_counted_yet_is_waiting():
    gate, reached = threading.Event(), threading.Event()

    def hold(plan):
        reached.set()
        assert gate.wait(10)

    engine = await start_engine(FakeExecutor(on_step=hold))
    stream = await engine.generate("a", greedy())
    assert await asyncio.to_thread(reached.wait, 5)
    stats = engine.stats()
    assert stats.running + stats.waiting == 1
    gate.set()
    await stream.result()
    await engine.stop()


@pytest.mark.parametrize("error", [AttributeError("no workers"), SystemExit(3)], ids=by_name)
def test_a_failed_load_is_what_the_user_hears_of(monkeypatch, error):
    from corelm.assembly import create_engine

    class HalfBuilt(FakeExecutor):
        def load(self, progress):
            raise ModelLoadError("weights missing; fetch them")

        def shutdown(self):
            raise error

    monkeypatch.setattr("corelm_fake._Scripted", lambda settings, context: HalfBuilt())
    engine = create_engine("fake", executor="fake", tokenizer="fake")
    with pytest.raises(ModelLoadError, match="fetch them"):
        asyncio.run(engine.start())


def test_a_cache_without_blocks_is_refused():
    from corelm.assembly import create_engine

    engine = create_engine("fake", executor="fake", tokenizer="fake", kv_cache_tokens=5)
    with pytest.raises(ModelLoadError, match=r"num_blocks = 0.*--kv-cache-tokens"):
        asyncio.run(engine.start())


async def test_counters_go_on_when_the_engine_fails():
    def fail_later(plan):
        if plan.step_id == 5:
            raise ZeroDivisionError

    engine = await start_engine(FakeExecutor(on_step=fail_later))
    with pytest.raises(EngineDeadError):
        await (await engine.generate("a", greedy())).result()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.total_blocks)
    assert (stats.steps, stats.generation_tokens) == (4, 4)
    await engine.stop()


async def test_tokenizations_that_hang_do_not_keep_others_from_theirs():
    gate = threading.Event()

    class Hangs(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            if text == "hang":
                gate.wait(20)
            return super().encode(text)

    engine = await start_engine(tokenizer=Hangs(), iteration_timeout_s=0.2)
    for _ in range(3):
        with pytest.raises(RequestFailedError, match="tokenised"):
            await engine.generate("hang", greedy())
    assert (await (await engine.generate("a", greedy())).result()).text == expected_text("a")
    hanging = [engine.generate("hang", greedy()) for _ in range(8)]
    await asyncio.gather(*hanging, return_exceptions=True)
    assert engine.status == "errored"
    assert "tokenizer" in str(engine.failure)
    gate.set()
    await engine.stop()


async def test_health_is_asked_while_the_engine_is_busy(monkeypatch):
    monkeypatch.setattr("corelm.engine.engine.HEALTH_INTERVAL_S", 0.0)
    executor = FakeExecutor()

    def sicken(plan):
        if plan.step_id == 3:
            executor.unhealthy = OSError("the device is gone")

    executor.on_step = sicken
    engine = await start_engine(executor)
    with pytest.raises(EngineDeadError, match="the device is gone"):
        await (await engine.generate("a", greedy())).result()
    await engine.stop()


async def test_each_stream_ends_with_an_error_of_its_own():
    both = threading.Event()

    def fail(plan):
        both.wait(timeout=10)
        raise ZeroDivisionError

    engine = await start_engine(FakeExecutor(on_step=fail))
    streams = [await engine.generate("a", greedy()) for _ in range(2)]
    both.set()
    errors = await asyncio.gather(*(stream.result() for stream in streams), return_exceptions=True)
    assert errors[0] is not errors[1]
    await engine.stop()


def test_a_sequence_that_failed_is_computed_no_further():
    class Unlucky(FakeExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            return StepResult(
                step_id=plan.step_id, token_ids=result.token_ids, errors={item.seq_id: "bad" for item in plan.slices}
            )

    engine = make_engine(Unlucky())
    engine.add(engine.intake.prepare("a", greedy(), request_id="a", arrival=0.0))
    engine.step()
    assert not engine.has_work
