"""Several choices on one stream, and the bounded queue."""

import asyncio
import threading

import pytest
from helpers import expected_text, greedy, start_engine

from corelm.api import BeamSearch, QueueFullError, RequestFailedError, SamplingParams, StepResult
from corelm.testing import FakeExecutor


@pytest.fixture
async def engine():
    engine = await start_engine()
    yield engine
    await engine.stop()


def three(**values):
    return SamplingParams(**{"n": 3, "seed": 5, "max_tokens": 6, "ignore_eos": True, **values})


async def at_rest(engine):
    async with asyncio.timeout(10):
        while engine.stats().running or engine.stats().waiting:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
    assert engine.stats().free_blocks == engine.stats().total_blocks


async def test_streamed_choices_join_to_the_whole_ones(engine):
    texts, ends = {}, []
    async for output in await engine.generate("hello", three()):
        texts[output.index] = texts.get(output.index, "") + output.text
        ends += [output.index] * (output.finish_reason is not None)
    whole = await (await engine.generate("hello", three())).results()
    assert [texts[index] for index in range(3)] == [output.text for output in whole]
    assert [output.text for output in whole] == [expected_text("hello", 6, 5 + index) for index in range(3)]
    assert sorted(ends) == [0, 1, 2]
    assert engine.stats().finished == {"length": 2}


async def test_leaving_ends_every_choice(engine):
    async for _ in await engine.generate("hello", three(max_tokens=200)):
        break
    await at_rest(engine)
    assert engine.stats().finished == {"abort": 1}


async def test_an_abort_ends_each_choice_once(engine):
    stream = await engine.generate("hello", three(max_tokens=200))
    await anext(stream)
    stream.abort()
    outputs = [output async for output in stream]
    assert sorted(output.index for output in outputs if output.finish_reason == "abort") == [0, 1, 2]
    await at_rest(engine)


async def test_beams_are_told_at_the_end(engine):
    stream = await engine.generate("hello", SamplingParams(beam=BeamSearch(width=3), n=2, max_tokens=6))
    outputs = [output async for output in stream]
    assert [(output.index, output.finish_reason) for output in outputs] == [(0, "length"), (1, "length")]
    assert outputs[0].cumulative_logprob > outputs[1].cumulative_logprob


async def test_one_sequence_that_fails_ends_its_group_and_nobody_else():
    class Unlucky(FakeExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            children = [start.seq_id for start in plan.started if start.sampling.seed == 6]
            return StepResult(
                step_id=plan.step_id, token_ids=result.token_ids, errors=dict.fromkeys(children, "bad luck")
            )

    engine = await start_engine(Unlucky())
    group = await engine.generate("hello", three())
    other = await engine.generate("other", greedy())
    with pytest.raises(RequestFailedError, match="bad luck"):
        await group.results()
    assert (await other.result()).text == expected_text("other")
    await at_rest(engine)
    await engine.stop()


async def test_more_than_may_wait_are_refused_before_any_work():
    gate = threading.Event()
    engine = await start_engine(FakeExecutor(on_step=lambda plan: gate.wait(20)), max_num_seqs=1, max_waiting=2)
    streams = [await engine.generate("a", greedy()) for _ in range(2)]
    with pytest.raises(QueueFullError, match="2 requests wait"):
        await engine.generate("b", greedy())
    gate.set()
    for stream in streams:
        assert (await stream.result()).text == expected_text("a")
    assert (await (await engine.generate("b", greedy())).result()).text == expected_text("b")
    await engine.stop()


async def test_what_tokens_stand_for(engine):
    assert await engine.token_bytes([104, 195, 257]) == [b"h", b"\xc3", b"<eos>"]


async def test_a_burst_cannot_pass_the_limit():
    gate = threading.Event()
    engine = await start_engine(FakeExecutor(on_step=lambda plan: gate.wait(20)), max_num_seqs=1, max_waiting=10)

    async def ask():
        try:
            return await (await engine.generate("a", greedy())).result()
        except QueueFullError:
            return None

    tasks = [asyncio.create_task(ask()) for _ in range(200)]
    await asyncio.sleep(0.1)
    gate.set()
    answers = await asyncio.gather(*tasks)
    assert 10 <= sum(answer is not None for answer in answers) <= 11
    await engine.stop()


async def test_choices_that_wait_do_not_keep_others_out():
    engine = await start_engine(max_num_seqs=2, max_waiting=3)
    stream = await engine.generate("a", three(n=20, max_tokens=50))
    await anext(stream)
    assert engine.stats().waiting > 3
    assert (await (await engine.generate("b", greedy())).result()).text == expected_text("b")
    stream.abort()
    await engine.stop()
