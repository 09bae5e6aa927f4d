import asyncio
import logging

import pytest
from corelm_openai.completions.reply import CompletionReply
from corelm_openai.generation.choices import Choices, Job
from corelm_openai.generation.stream import EventStream
from corelm_openai.generation.vocabulary import Vocabulary
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error, events_of

from corelm.api import (
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    QueueFullError,
    RequestFailedError,
    RequestOptions,
    SamplingParams,
)

PATHS = ["/v1/completions", "/v1/chat/completions"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b'{"model": "fake"} x',
        b"\xff\xfe",
        b'{"model": "fa\xffke"}',
        b'{"x": ' + b"[" * 100_000,
        b'{"prompt": "\\ud800", "model": "fake"}',
        b'{"prompt": "\\udc00", "model": "fake"}',
        b'{"prompt": "\\udc00\\ud800", "model": "fake"}',
        b'{"model": "\\ud83d"}',
        b'{"user": "\\ud83d", "model": "fake"}',
        b'{"messages": [{"role": "user", "content": "cut \\ud83d"}], "model": "fake"}',
    ],
)
async def test_bodies_that_are_not_json(http, engine, path, body):
    assert_error(await http.post(path, content=body), 400)
    assert not engine.calls


def nested(depth):
    """A JSON Schema of objects within each other."""
    return b'{"type": "object", "properties": {"a": ' * depth + b"{}" + b"}}" * depth


@pytest.mark.parametrize("depth", [20, 150, 240, 300, 400, 600, 5000])
async def test_what_is_nested_deeply_is_an_answer_or_the_clients_error(http, depth):
    message = b'{"model": "fake", "messages": [{"role": "user", "content": "a"}], '
    tools = b'"tools": [{"type": "function", "function": {"name": "f", "parameters": %b}}]' % nested(depth)
    call = b'{"type": "tool_use", "id": "c", "name": "f", "input": %b}' % nested(depth)
    result = b'{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}'
    turns = b'[{"role": "user", "content": "a"}, {"role": "assistant", "content": [%b]}, %b]' % (call, result)
    schema = b'"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": %b}}' % nested(depth)
    bodies = {
        message + tools + b"}": "/v1/chat/completions",
        message + tools + b', "tool_choice": "required"}': "/v1/chat/completions",
        message + tools + b", " + schema + b"}": "/v1/chat/completions",
        message + b'"chat_template_kwargs": {"x": %b}}' % nested(depth): "/v1/chat/completions",
        b'{"model": "fake", "max_tokens": 9, "messages": %b}' % turns: "/v1/messages",
    }
    for body, path in bodies.items():
        response = await http.post(path, content=body)
        assert response.status_code in (200, 400), response.text


async def test_what_a_client_sends_is_not_told_back_at_length(http):
    long = "A" * 2**20
    bodies = [
        ("/v1/embeddings", {"model": "fake", "input": "a", "encoding_format": long}),
        ("/v1/responses", {"model": "fake", "input": "a", long: 1}),
        ("/v1/chat/completions", {"model": "fake", "messages": [{"role": long, "content": "a"}]}),
    ]
    for path, body in bodies:
        response = await http.post(path, json=body)
        assert_error(response, 400)
        assert len(response.content) < 600


async def test_text_may_hold_any_real_character(http, engine):
    text = "\x00\x01\u2028 \U0001f642"
    assert (await http.complete(prompt=text)).status_code == 200
    assert engine.calls[0]["prompt"] == text


async def test_the_content_type_does_not_matter(http):
    body = b'{"model": "fake", "prompt": "a"}'
    for content_type in ("text/plain", "application/json; charset=utf-8", "application/x-www-form-urlencoded"):
        response = await http.post(PATHS[0], content=body, headers={"content-type": content_type})
        assert response.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_unknown_models(http, engine, stream):
    engine.admit = asyncio.Event()
    for response in (await http.complete(model="nope", stream=stream), await http.chat(model="", stream=stream)):
        message = assert_error(response, 404, param="model", code="model_not_found")
        assert "org/fake-1.5b" in message
    assert len(assert_error(await http.complete(model="x" * 2**20, stream=stream), 404)) < 250
    assert_error(await http.post(PATHS[0], json={"prompt": "a"}), 400, param="model")
    assert_error(await http.complete(model=None), 400, param="model")
    assert not engine.calls


async def test_every_listed_model_works(http):
    listed = (await http.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["fake", "org/fake-1.5b"]
    for model in listed["data"]:
        assert model["object"] == "model"
        assert model == (await http.get(f"/v1/models/{model['id']}")).json()
        assert (await http.complete(model=model["id"])).json()["model"] == model["id"]
        *events, _ = events_of((await http.chat(model=model["id"], stream=True)).text)
        assert {event["model"] for event in events} == {model["id"]}
    assert_error(await http.get("/v1/models/org/nope"), 404, code="model_not_found")
    assert (await http.get("/v1/models/org%2Ffake-1.5b")).json()["id"] == "org/fake-1.5b"


async def test_unknown_urls_and_methods(http):
    assert_error(await http.get("/v1/nothing"), 404)
    assert_error(await http.post("/V1/completions", json={}), 404)
    response = await http.get("/v1/completions")
    assert_error(response, 405)
    assert "POST" in response.headers["allow"]


async def test_too_large_a_body(engine):
    async with Http(engine, OpenAISettings(max_body_mb=0.001)) as http:
        assert_error(await http.complete(prompt="x" * 2000), 413)
        assert (await http.complete()).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequestError("no", param="x", code="y"), 400, "invalid_request_error"),
        (EngineStoppedError("not now"), 503, "service_unavailable"),
        (QueueFullError("64 requests wait"), 429, "rate_limit_error"),
        (EngineDeadError("a secret from /etc/x.py"), 500, "server_error"),
        (RequestFailedError("the row failed"), 500, "server_error"),
        (ZeroDivisionError("a secret from /etc/x.py"), 500, "server_error"),
    ],
)
async def test_errors_before_the_first_token_have_a_status(http, engine, stream, error, status, kind, caplog):
    engine.refuse[0] = error
    message = assert_error(await http.chat(stream=stream), status, kind=kind)
    assert "secret" not in message
    engine.fail_with = error
    response = await http.chat(stream=stream)
    assert assert_error(response, status, kind=kind) == message
    assert response.headers.get("retry-after") == {503: "5", 429: "1"}.get(status)
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.exc_info[1] for record in logged] == ([error] * 2 if isinstance(error, ZeroDivisionError) else [])


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("error", [RequestFailedError("the row failed"), EngineStoppedError("bye"), KeyError("secret")])
async def test_an_error_in_mid_stream_is_one_event(http, engine, n, error):
    engine.fail_with, engine.fail_after = error, 3
    response = await http.chat(stream=True, n=n)
    assert response.status_code == 200
    *events, last = events_of(response.text)
    assert last.keys() == {"error"}
    assert last["error"].keys() == {"message", "type", "param", "code"}
    assert "secret" not in last["error"]["message"]
    text = "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])
    assert text.startswith("a ")
    assert all(choice["finish_reason"] is None for event in events for choice in event["choices"])
    assert not engine.live


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_in_the_middle_of_a_list_ends_what_was_queued(http, engine, stream):
    engine.gate = asyncio.Event()
    engine.refuse[2] = QueueFullError("64 requests wait")
    response = await http.complete(prompt=["a", "b", "c", "d"], stream=stream)
    assert_error(response, 429, kind="rate_limit_error", code="queue_full", param=None)
    assert response.headers["retry-after"] == "1"
    assert len(engine.calls) == 3
    assert engine.finished == {"abort": 2}
    assert not engine.live


async def test_health_follows_the_engine(engine, settings):
    stop = asyncio.Event()
    async with Http(engine, settings, stop) as http:
        assert (await http.get("/health")).json() == {"status": "ready"}
        assert (await http.head("/health")).status_code == 200
        for status in ("starting", "draining", "stopped"):
            engine.status = status
            for response in (await http.get("/health"), await http.complete(), await http.chat(stream=True)):
                assert_error(response, 503, kind="service_unavailable")
                assert response.headers["retry-after"]
        engine.status, engine.dead = "errored", EngineDeadError("boom")
        assert_error(await http.get("/health"), 503, kind="service_unavailable")
        assert_error(await http.complete(), 500, kind="server_error")
        engine.status, engine.dead = "ready", None
        stop.set()
        for response in (await http.get("/health"), await http.complete()):
            assert_error(response, 503, kind="service_unavailable")


async def test_starting_comes_before_the_model_is_known(http, engine):
    engine.status, engine.names = "starting", ()
    assert_error(await http.complete(), 503, kind="service_unavailable")
    assert (await http.get("/v1/models")).json()["data"] == []
    assert_error(await http.get("/v1/models/fake"), 503, kind="service_unavailable")


async def test_an_error_while_sending_is_not_an_event(engine):
    """The connection is broken then, so that writing to it would only fail again."""
    sent = []

    async def send(message):
        sent.append(message)
        if len(sent) == 2:
            raise ZeroDivisionError

    job = Job(prompts=["a b"], params=SamplingParams(), options=RequestOptions())
    reply = CompletionReply("fake", job, Vocabulary(engine), include_usage=False)
    with pytest.raises(ZeroDivisionError):
        await EventStream(Choices(engine, job, "x"), reply)({}, asyncio.Event().wait, send)
    assert len(sent) == 2
    assert not engine.live
