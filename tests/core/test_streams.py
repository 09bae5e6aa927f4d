import asyncio

import pytest

from corelm.api import DuplicateRequestError, EngineDeadError, RequestOutput
from corelm.engine.streams import AsyncStream
from corelm.engine.tracker import RequestTracker


def output(text, finish=None, count=1):
    return RequestOutput(
        request_id="r",
        text=text,
        token_ids=tuple(text.encode()),
        finish_reason=finish,
        prompt_tokens=2,
        completion_tokens=count,
    )


def make_stream():
    return AsyncStream("r", 1, AsyncStream.put_abort)


async def test_outputs_come_in_order_and_then_it_ends():
    stream = make_stream()
    stream.put(output("a"))
    assert (await anext(stream)).text == "a"
    stream.put(output("b", "stop", 2))
    assert [(o.text, o.finish_reason) async for o in stream] == [("b", "stop")]


async def test_a_slow_reader_gets_merged_outputs():
    stream = make_stream()
    for text, finish in [("a", None), ("b", None), ("c", "length")]:
        stream.put(output(text, finish))
    merged = [o async for o in stream]
    assert [(o.text, o.token_ids, o.finish_reason) for o in merged] == [("abc", (97, 98, 99), "length")]


async def test_finish_is_idempotent_and_what_comes_later_is_ignored():
    stream = make_stream()
    stream.put(output("a", "stop"))
    stream.put(output("late"))
    stream.fail(EngineDeadError("late"))
    stream.abort()
    assert [o.text async for o in stream] == ["a"]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_error_comes_after_the_text_before_it():
    stream = make_stream()
    stream.put(output("a"))
    stream.fail(EngineDeadError("broken"))
    assert (await anext(stream)).text == "a"
    with pytest.raises(EngineDeadError, match="broken"):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_result_wakes_once_with_everything():
    stream = make_stream()
    task = asyncio.create_task(stream.result())
    await asyncio.sleep(0)
    stream.put(output("a"))
    await asyncio.sleep(0)
    assert not task.done()
    stream.put(output("b", "stop"))
    assert (await task).text == "ab"


async def test_result_raises_the_error():
    stream = make_stream()
    stream.put(output("a"))
    stream.fail(EngineDeadError("broken"))
    with pytest.raises(EngineDeadError):
        await stream.result()


@pytest.mark.parametrize("wait", [AsyncStream.__anext__, AsyncStream.result])
async def test_cancelling_the_consumer_aborts(wait):
    stream = make_stream()
    task = asyncio.create_task(wait(stream))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.finished
    assert (await anext(stream)).finish_reason == "abort"


async def test_a_live_id_is_refused_and_free_again_after_the_end():
    tracker = RequestTracker()
    stream = tracker.open("x")
    with pytest.raises(DuplicateRequestError, match="'x'"):
        tracker.open("x")
    stream.abort()
    assert tracker.finished == {"abort": 1}
    tracker.open("x")


async def test_abort_of_unknown_and_finished_ids_does_nothing():
    tracker = RequestTracker()
    tracker.abort("nobody")
    stream = tracker.open("x")
    stream.abort()
    stream.abort()
    tracker.abort("x")
    assert tracker.finished == {"abort": 1}
    assert tracker.take() == ([], [])
