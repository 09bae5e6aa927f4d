"""Clients that leave, that do not read, and that come back: on a real server, over raw sockets."""

import asyncio
import random

import httpx
import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import RealServer, events_of, raw_request, until

from corelm.api import SamplingParams

PATHS = ["/v1/completions", "/v1/chat/completions"]


def body(stream=True, **values):
    return {
        "model": "fake",
        "prompt": "one two three",
        "messages": [{"role": "user", "content": "one two three"}],
        "stream": stream,
        **values,
    }


async def test_200_dropped_streams_leave_nothing(server, engine, caplog):
    rng = random.Random(7)
    engine.say = lambda prompt, seed: ["word "] * 50

    async def drop(number):
        async with server.connect() as (reader, writer):
            n = rng.choice([1, 1, 3])
            asked = body(n=n, max_tokens=rng.choice([3, 50]))
            writer.write(raw_request(PATHS[number % 2], asked, headers=["connection: close"]))
            for _ in range(rng.randrange(4)):
                await reader.read(rng.choice([1, 300, 5000]))
            if rng.random() < 0.5:
                writer.transport.abort()

    for start in range(0, 200, 20):
        await asyncio.gather(*(drop(number) for number in range(start, start + 20)))
    await until(lambda: not engine.live)
    own = {asyncio.current_task(), server.running}
    await until(lambda: asyncio.all_tasks() == own)
    assert not caplog.records


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("values", [{}, {"n": 3}, {"prompt": ["a", "b"]}])
@pytest.mark.parametrize("where", ["generate", "first token", "later"])
async def test_leaving_aborts(server, engine, stream, values, where, caplog):
    if where == "generate":
        engine.admit = asyncio.Event()
    else:
        engine.gate, engine.gate_after = asyncio.Event(), 0 if where == "first token" else 2
    asked = 2 if "prompt" in values and where != "generate" else 1
    async with server.connect() as (_, writer):
        writer.write(raw_request("/v1/completions", body(stream, **values)))
        await until(lambda: (len(engine.calls) if where == "generate" else engine.waiting) == asked)
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task(), server.running})
    assert not engine.live
    assert engine.finished == ({} if where == "generate" else {"abort": asked})
    assert not caplog.records


async def test_a_stream_that_is_always_ready_does_not_hold_the_loop(server, engine):
    class Ready:
        request_id = "x"
        read = 0

        async def __anext__(self):
            self.read += 1
            return engine.output

        def abort(self):
            pass

    ready = Ready()

    async def generate(prompt, params, **kwargs):
        return ready

    stream = await engine.generate("a", SamplingParams(max_tokens=1))
    engine.output = await anext(stream)
    engine.output = type(engine.output)(request_id="x", text="a", token_ids=(1,), prompt_tokens=1, completion_tokens=1)
    engine.generate = generate
    async with server.connect() as (reader, writer):
        writer.write(raw_request("/v1/completions", body()))
        await reader.readuntil(b"data: ")
        async with httpx.AsyncClient() as client, asyncio.timeout(5):
            assert (await client.get(f"{server.url}/health")).status_code == 200
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task(), server.running})
    count = ready.read
    await asyncio.sleep(0)
    assert ready.read == count


async def test_a_client_that_stops_reading_holds_up_nobody_and_loses_nothing(server, engine):
    pieces = [f"{number} " * 500 for number in range(3000)]
    engine.say = lambda prompt, seed: pieces
    asked = body(max_tokens=len(pieces))
    url = f"{server.url}/v1/completions"
    async with httpx.AsyncClient(timeout=10) as client, client.stream("POST", url, json=asked) as slow:
        raw = slow.aiter_raw()
        received = await anext(raw)
        quick = await client.post(url, json=body(False, max_tokens=1))
        assert quick.json()["choices"][0]["text"] == pieces[0]
        await until(lambda: not engine.live)
        received += b"".join([chunk async for chunk in raw])
    *events, done = events_of(received.decode())
    assert done == "[DONE]"
    assert "".join(event["choices"][0]["text"] for event in events) == "".join(pieces)
    assert len(events) < len(pieces), "what was not read was merged in the engine, not kept by the server"


async def test_a_client_that_never_reads_is_cut(engine):
    engine.say = lambda prompt, seed: ["x" * 10_000] * 5_000
    settings = OpenAISettings(port=0, io_timeout_s=0.3)
    async with RealServer(engine, settings) as server, server.connect() as (_, writer):
        writer.transport.pause_reading()
        writer.write(raw_request("/v1/completions", body(max_tokens=5_000)))
        await until(lambda: engine.calls)
        await until(lambda: not engine.live)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task(), server.running})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_waits_long_for_its_first_token_is_not_cut(engine, stream):
    engine.gate = asyncio.Event()
    settings = OpenAISettings(port=0, io_timeout_s=0.1, keep_alive_s=1)
    async with RealServer(engine, settings) as server, httpx.AsyncClient(timeout=20) as client:
        waiting = asyncio.create_task(client.post(f"{server.url}/v1/completions", json=body(stream)))
        await until(lambda: engine.waiting)
        begun = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - begun > 1.2 or waiting.done())
        assert not waiting.done()
        engine.gate.set()
        reply = await waiting
        assert reply.status_code == 200
        events = events_of(reply.text)[:-1] if stream else [reply.json()]
        reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
        assert [reason for reason in reasons if reason] == ["stop"]


async def test_a_body_that_never_comes_is_answered(engine):
    async with (
        RealServer(engine, OpenAISettings(port=0, io_timeout_s=0.1)) as server,
        server.connect() as (reader, writer),
    ):
        writer.write(raw_request("/v1/completions", body())[:-5])
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
    assert not engine.calls


async def test_a_connection_is_reusable_after_an_error_with_an_unread_body(engine):
    settings = OpenAISettings(port=0, max_body_mb=0.1)
    async with RealServer(engine, settings) as server, server.connect() as (reader, writer):
        writer.write(raw_request("/v1/completions", body(prompt="x" * 500_000)))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 ")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        if b"connection: close" not in head.lower():
            writer.write(raw_request("/v1/completions", body(False)))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


async def test_events_survive_clients_that_split_at_every_unicode_line_end(server, engine):
    odd = "a\r\n\u0085\u2028\u2029\x0b\x0c\x1c\x1d\x1e\u00e9\U0001f642"
    engine.say = lambda prompt, seed: list(odd)
    async with httpx.AsyncClient() as client:
        for path in PATHS:
            response = await client.post(server.url + path, json=body(max_tokens=100))
            *events, _ = events_of(response.content.decode())
            choices = [choice for event in events for choice in event["choices"]]
            text = "".join(choice.get("text") or choice.get("delta", {}).get("content", "") for choice in choices)
            assert text == odd


async def test_one_external_id_for_many_requests(server, engine):
    headers = {"x-request-id": "mine"}
    async with httpx.AsyncClient() as client:
        replies = await asyncio.gather(
            *(client.post(f"{server.url}{PATHS[i % 2]}", json=body(i % 3 == 0), headers=headers) for i in range(10))
        )
    assert all(reply.status_code == 200 and reply.headers["x-request-id"] == "mine" for reply in replies)
    assert len({call["request_id"] for call in engine.calls}) == 10


async def test_cancel_then_ask_again_with_the_same_external_id(server, engine):
    async with httpx.AsyncClient() as client:
        for _ in range(100):
            async with server.connect() as (_, writer):
                writer.write(raw_request("/v1/completions", body(), headers=["x-request-id: same"]))
                await writer.drain()
                writer.transport.abort()
            reply = await client.post(
                f"{server.url}/v1/completions", json=body(False), headers={"x-request-id": "same"}
            )
            assert reply.json()["choices"][0]["text"] == "one two three " * 3
