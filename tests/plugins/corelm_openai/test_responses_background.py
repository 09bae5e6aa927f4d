"""Responses that are made in the background."""

import asyncio

import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import assert_error, raw_request, until
from responses_kit import events_of_response, names, respond, responded, text_of

from corelm.api import QueueFullError, RequestFailedError


@pytest.fixture
def settings():
    return OpenAISettings(port=0, responses_max=2)


@pytest.fixture
def gate(engine):
    engine.gate, engine.gate_after = asyncio.Event(), 2
    return engine.gate


async def get(http, response, **params):
    answer = await http.get(f"/v1/responses/{response['id']}", params=params)
    assert answer.status_code == 200, answer.text
    return answer


async def ended(http, response):
    """The response, once it has ended."""
    async with asyncio.timeout(10):
        while (now := (await get(http, response)).json())["status"] in ("queued", "in_progress"):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    return now


async def test_its_life(http, engine, gate):
    response = await responded(http, background=True)
    assert (response["status"], response["background"], response["output"]) == ("queued", True, [])
    await until(lambda: engine.waiting)
    assert (await get(http, response)).json()["status"] == "in_progress"
    assert_error(await respond(http, previous_response_id=response["id"]), 400, param="previous_response_id")
    gate.set()
    response = await ended(http, response)
    assert response["status"] == "completed"
    assert text_of(response) == "a b a b a b "
    assert response["usage"]["total_tokens"] == 8
    engine.gate = None
    await responded(http, input="c", previous_response_id=response["id"])
    assert len(engine.calls[-1]["prompt"].messages) == 3


async def test_cancelling(http, engine, gate):
    response = await responded(http, background=True)
    await until(lambda: engine.waiting)
    cancelled = await http.post(f"/v1/responses/{response['id']}/cancel")
    assert cancelled.json()["status"] == "cancelled"
    assert not engine.live
    assert engine.finished == {"abort": 1}
    assert (await http.post(f"/v1/responses/{response['id']}/cancel")).json() == cancelled.json()
    assert (await get(http, response)).json() == cancelled.json()
    assert text_of(cancelled.json()) == "a b "


async def test_cancelling_what_has_ended_changes_nothing(http):
    response = await ended(http, await responded(http, background=True))
    assert (await http.post(f"/v1/responses/{response['id']}/cancel")).json() == response


async def test_a_failure_is_kept(http, engine):
    engine.fail_with, engine.fail_after = RequestFailedError("the row failed"), 2
    response = await ended(http, await responded(http, background=True))
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "the row failed"}


async def test_a_request_that_is_not_taken_is_refused_at_once(http, engine):
    engine.refuse[0] = QueueFullError("64 requests wait")
    assert_error(await respond(http, background=True), 429, code="queue_full", kind="rate_limit_error")
    assert not engine.live


async def test_forgetting_ends_it(http, engine, gate):
    response = await responded(http, background=True)
    await until(lambda: engine.waiting)
    await http.delete(f"/v1/responses/{response['id']}")
    assert not engine.live
    assert (await http.get(f"/v1/responses/{response['id']}")).status_code == 404


async def test_one_that_must_make_room_is_ended(http, engine, gate):
    response = await responded(http, background=True)
    await until(lambda: engine.waiting)
    gate.set()
    engine.gate = None
    engine.gate, engine.gate_after = asyncio.Event(), 1
    first = await responded(http, background=True)
    await until(lambda: engine.waiting == 2)
    engine.gate = None
    await responded(http)
    await responded(http)
    assert not engine.live
    for gone in (first, response):
        assert (await http.get(f"/v1/responses/{gone['id']}")).status_code == 404


async def test_following(http, engine, gate):
    asking = asyncio.create_task(respond(http, background=True, stream=True))
    await until(lambda: engine.waiting)
    gate.set()
    text = (await asking).text
    events = events_of_response(text)
    assert names(events)[:4] == ["created", "queued", "in_progress", "output_item.added"]
    response = events[-1]["response"]
    assert events[-1]["type"] == "response.completed"
    again = await get(http, response, stream="true")
    assert again.text == text
    assert again.headers["content-type"] == "text/event-stream; charset=utf-8"
    rest = await get(http, response, stream="true", starting_after=4)
    assert events_of_response(rest.text, first=5) == events[5:]
    assert (await get(http, response, stream="true", starting_after=1000)).text == ""
    assert (await get(http, response)).json() == response


async def test_a_follower_hears_of_the_cancellation(http, engine, gate):
    following = asyncio.create_task(respond(http, background=True, stream=True))
    await until(lambda: engine.waiting)
    response_id = engine.calls[0]["request_id"].removesuffix("-0")
    await http.post(f"/v1/responses/{response_id}/cancel")
    events = events_of_response((await following).text)
    assert events[-1]["response"]["status"] == "cancelled"


async def test_it_goes_on_when_its_client_leaves(server, engine, gate):
    async with server.connect() as (reader, writer):
        body = {"model": "fake", "input": "a b", "background": True, "stream": True}
        writer.write(raw_request("/v1/responses", body))
        await reader.readuntil(b"response.output_text.delta")
    gate.set()
    await until(lambda: engine.finished)
    assert engine.finished == {"done": 1}


async def test_it_ends_when_the_server_stops(server, engine, gate):
    async with server.connect() as (reader, writer):
        body = {"model": "fake", "input": "a b", "background": True}
        writer.write(raw_request("/v1/responses", body))
        await reader.readuntil(b"queued")
        await until(lambda: engine.waiting)
    server.stop.set()
    await until(lambda: not engine.live)
    assert engine.finished == {"abort": 1}


async def test_a_follower_hears_that_the_server_stops(server, engine, gate):
    async with server.connect() as (reader, writer):
        body = {"model": "fake", "input": "a b", "background": True, "stream": True}
        writer.write(raw_request("/v1/responses", body))
        await until(lambda: engine.waiting)
        server.stop.set()
        text = (await reader.read()).decode()
    assert "event: response.failed" in text
    assert "shutting down" in text
