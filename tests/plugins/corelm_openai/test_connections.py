"""What clients may do to a connection: old and odd HTTP, silence, trickling, pipelining; over raw sockets."""

import asyncio
import contextlib
import json

import pytest
from corelm_openai.http import connection as connection_module
from corelm_openai.http import server as server_module
from corelm_openai.settings import OpenAISettings
from openai_http import RealServer, events_of, raw_request, until

PATH = "/v1/completions"


def body(stream=False, **values):
    return {"model": "fake", "prompt": "one two", "stream": stream, **values}


@pytest.fixture
async def impatient(engine):
    async with RealServer(engine, OpenAISettings(port=0, io_timeout_s=0.2, max_body_mb=0.1)) as running:
        yield running


async def cut(reader):
    """Read until the server closes the connection; what came before that."""
    async with asyncio.timeout(5):
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**16):
                received += data
        return received


async def trickle(reader, writer):
    """Send a byte every now and then, until the server closes the connection."""
    cutting = asyncio.create_task(cut(reader))
    async with asyncio.timeout(5):
        while not cutting.done():
            writer.write(b"x")
            await asyncio.wait([cutting], timeout=0.02)
    return await cutting


async def test_an_offered_upgrade_is_ignored(server, caplog):
    offer = ["connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoAAA"]
    async with server.connect() as (reader, writer):
        for _ in range(2):
            writer.write(raw_request(PATH, body(), headers=offer))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
    assert not caplog.records


async def test_http_1_0_gets_no_chunks(server):
    async with server.connect() as (reader, writer):
        writer.write(raw_request(PATH, body(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, text = (await cut(reader)).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert events_of(text.decode())[-1] == "[DONE]"


NONSENSE = [b"nonsense\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"]


@pytest.mark.parametrize("sent", NONSENSE)
async def test_what_is_not_http_gets_an_error_like_any_other(server, sent):
    async with server.connect() as (reader, writer):
        writer.write(sent)
        head, _, text = (await cut(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json\r\n" in head
    assert b"x-request-id: req_" in head
    error = {"message": "Invalid HTTP request received.", "type": "invalid_request_error", "param": None, "code": None}
    assert json.loads(text) == {"error": error}


@pytest.mark.parametrize("start", [b"GET /health HTTP/1.1\r\nx: ", b"GET /"])
async def test_endless_heads_are_refused(server, start, caplog):
    async with server.connect() as (reader, writer):
        writer.write(start + b"x" * 2**20)
        received = await cut(reader)
        assert received == b"" or received.startswith(b"HTTP/1.1 400 ")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("sent", [b"", b"POST /v1/com", raw_request(PATH, b"")[:-2]])
async def test_a_head_that_never_ends_is_cut(impatient, sent):
    async with impatient.connect() as (reader, writer):
        writer.write(sent)
        assert await cut(reader) == b""
    async with impatient.connect() as (reader, writer):
        writer.write(sent)
        await trickle(reader, writer)
    async with impatient.connect() as (reader, writer):
        writer.write(raw_request("/health", b"", method="GET"))
        await reader.readuntil(b'"ready"}')
        writer.write(sent or b"P")
        assert await cut(reader) == b""


async def test_a_body_that_stops_is_answered_and_cut(impatient, engine):
    async with impatient.connect() as (reader, writer):
        writer.write(raw_request(PATH, body())[:-5])
        received = await cut(reader)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close\r\n" in received.lower()
    assert not engine.calls


async def test_a_slow_but_steady_body_is_taken(impatient):
    data = raw_request(PATH, body(prompt="one two three four"))
    head = data.index(b"{")
    async with impatient.connect() as (reader, writer):
        writer.write(data[:head])
        for index in range(head, len(data), 8):
            writer.write(data[index : index + 8])
            await asyncio.sleep(0.05)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    assert (len(data) - head) / 8 * 0.05 > impatient.settings.io_timeout_s


async def test_the_rest_of_an_answered_body_cannot_trickle_for_ever(impatient):
    async with impatient.connect() as (reader, writer):
        writer.write(raw_request(PATH, body(prompt="x" * 200_000))[:-50_000])
        assert (await trickle(reader, writer)).startswith(b"HTTP/1.1 413 ")


async def test_nonsense_after_an_answer_is_cut_quietly(server, caplog):
    async with server.connect() as (reader, writer):
        head = raw_request("/nothing", b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
        writer.write(head)
        await reader.readuntil(b"}}")
        writer.write(b"nonsense\r\n")
        assert await cut(reader) == b""
    assert {record.levelname for record in caplog.records} <= {"WARNING"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("together", [False, True])
async def test_a_pipelining_client_that_leaves_ends_its_request(server, engine, stream, together, caplog):
    engine.gate, engine.gate_after = asyncio.Event(), 1
    first, second = raw_request(PATH, body(stream)), raw_request(PATH, body())
    async with server.connect() as (_, writer):
        writer.write(first + second if together else first)
        await until(lambda: engine.waiting == 1)
        if not together:
            writer.write(second)
            await writer.drain()
            await asyncio.sleep(0.02)
    await until(lambda: not engine.live)
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task(), server.running})
    assert engine.finished == {"abort": 1}
    assert not caplog.records


async def test_pipelined_requests_are_answered_in_order(server, engine):
    async with server.connect() as (reader, writer):
        writer.write(b"".join(raw_request(PATH, body(prompt=prompt)) for prompt in ("a", "b", "c")))
        for prompt in (b"a", b"b", b"c"):
            await reader.readuntil(b'"text":"%b %b %b ' % (prompt, prompt, prompt))
    assert len(engine.calls) == 3


async def test_a_half_sent_body_does_not_hold_up_stopping(server, engine):
    async with server.connect() as (reader, writer):
        writer.write(raw_request(PATH, body())[:-5])
        await until(lambda: len(asyncio.all_tasks()) > 2)
        server.stop.set()
        assert (await cut(reader)).startswith(b"HTTP/1.1 503 ")
        await asyncio.wait_for(server.running, 5)
    assert not engine.calls


async def test_a_client_that_does_not_read_does_not_hold_up_stopping(server, engine, monkeypatch):
    for module in (connection_module, server_module):
        monkeypatch.setattr(module, "LINGER_S", 0.2)
    engine.say = lambda prompt, seed: ["x" * 10_000] * 3_000
    async with server.connect() as (_, writer):
        writer.transport.pause_reading()
        writer.write(raw_request(PATH, body(stream=True, max_tokens=3_000)))
        await until(lambda: engine.finished["done"] == 1)
        server.stop.set()
        await asyncio.wait_for(server.running, 5)
