"""The line that each request leaves in the log, and what was in it."""

import asyncio
import logging
import re

import pytest
from corelm_openai.http.auth import identity
from corelm_openai.settings import OpenAISettings
from openai_http import Http, RealServer, raw_request, until

ACCESS, BODIES = "corelm_openai.access", "corelm_openai.requests"


@pytest.fixture(autouse=True)
def everything(caplog):
    caplog.set_level(logging.DEBUG, logger="corelm_openai")


def lines(caplog, name=ACCESS, level=logging.INFO):
    return [record.getMessage() for record in caplog.records if record.name == name and record.levelno >= level]


async def test_a_line_has_all_that_finds_a_request(engine, caplog):
    async with Http(engine, OpenAISettings(api_keys=["k"])) as http:
        response = await http.complete(prompt="a b", max_tokens=2)
        assert response.status_code == 401
        response = await http.post(
            "/v1/completions",
            json={"model": "fake", "prompt": "a b", "max_tokens": 2},
            headers={"x-api-key": "k", "x-request-id": "mine"},
        )
    refused, answered = lines(caplog)
    assert re.fullmatch(r'127\.0\.0\.1 "POST /v1/completions" 401 0\.\d{3}s request=req_[0-9a-f]{32}', refused)
    reply = response.json()["id"]
    assert re.fullmatch(
        rf'127\.0\.0\.1 "POST /v1/completions" 200 0\.\d{{3}}s request=mine key={identity(b"k")} '
        rf"reply={reply} in=2 out=2",
        answered,
    )
    assert engine.calls[0]["request_id"].startswith(reply)


async def test_streams_are_told_when_they_have_ended(http, caplog):
    await http.complete(stream=True, prompt="a b")
    await http.chat(stream=True)
    completion, chat = lines(caplog)
    assert '"POST /v1/completions" 200' in completion
    assert completion.endswith(" in=2 out=6")
    assert '"POST /v1/chat/completions" 200' in chat


@pytest.mark.parametrize("path", ["/health", "/health/live", "/metrics"])
async def test_good_news_from_routes_that_machines_ask_is_only_for_debugging(http, stop, caplog, path):
    await http.get(path)
    assert lines(caplog) == []
    assert len(lines(caplog, level=logging.DEBUG)) == 1
    stop.set()
    await http.get("/health")
    assert '"GET /health" 503' in lines(caplog)[0]


async def test_a_client_that_leaves_is_told(engine, caplog):
    engine.gate, engine.gate_after = asyncio.Event(), 2
    async with RealServer(engine, OpenAISettings(port=0)) as server:
        for stream in (False, True):
            async with server.connect() as (reader, writer):
                body = {"model": "fake", "prompt": "a", "stream": stream}
                writer.write(raw_request("/v1/completions", body))
                await until(lambda: engine.waiting == 1)
                if stream:
                    await reader.readuntil(b"data:")
            await until(lambda: not engine.live)
            engine.waiting = 0
        await until(lambda: len(lines(caplog)) == 2)
    whole, streamed = lines(caplog)
    assert '"POST /v1/completions" 499 ' in whole
    assert '"POST /v1/completions" 200 ' in streamed
    assert streamed.endswith(" the client left")


async def test_it_can_be_switched_off(engine, caplog):
    async with Http(engine, OpenAISettings(access_log=False)) as http:
        await http.complete()
    assert not lines(caplog, level=logging.DEBUG)


async def test_nothing_of_a_request_can_pass_for_another_line(engine, caplog):
    async with RealServer(engine, OpenAISettings(port=0, log_requests_max_chars=1000)) as server:
        for request in (
            b"GET /a%0d%0aGET%20/b?secret=1 HTTP/1.1\r\nhost: t\r\nx-request-id: a%0ab\r\n\r\n",
            b"GET /\x1b[31m HTTP/1.1\r\nhost: t\r\n\r\n",
            b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nhost: t\r\n\r\n",
            raw_request("/v1/completions", b'{"model": "\r\n\x1b[2J\xe2\x80\xa8\xff"}'),
        ):
            async with server.connect() as (reader, writer):
                writer.write(request)
                await reader.readline()
    told = [record.getMessage() for record in caplog.records if record.name in (ACCESS, BODIES)]
    assert len(told) == 4
    assert all(line.isprintable() and len(line) < 400 for line in told)
    assert "secret" not in "".join(told)
    assert "/a%0d%0aGET%20/b" in told[0]


async def test_bodies_are_logged_only_if_wanted(http, engine, caplog):
    await http.complete(prompt="private")
    assert not lines(caplog, BODIES, logging.DEBUG)
    async with Http(engine, OpenAISettings(log_requests_max_chars=30)) as talkative:
        await talkative.post("/v1/completions", content=b"\xc3\xa4" * 30, headers={"x-request-id": "one"})
        await talkative.post("/v1/completions", content=b"\xc3\xa4" * 31, headers={"x-request-id": "two"})
        await talkative.complete(prompt="x" * 1000)
    first, second, third = lines(caplog, BODIES)
    assert first == "request=one body=" + "ä" * 30
    assert second == "request=two body=" + "ä" * 30 + "..."
    assert '{"model":"fake","prompt":"xxx' in third
    assert third.endswith("x...")
