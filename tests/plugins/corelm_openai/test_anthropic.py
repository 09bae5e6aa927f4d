"""``/v1/messages`` over HTTP, without a client library."""

import asyncio
import json

import pytest
from anthropic_fakes import ChatEngine, assert_anthropic_error, message, named_events
from corelm_openai.settings import OpenAISettings
from openai_http import Http, raw_request, until

from corelm.api import (
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    QueueFullError,
    RequestFailedError,
    StructuredOutput,
)

PATH = "/v1/messages"
USER = {"role": "user", "content": "a b"}


@pytest.fixture
def engine():
    return ChatEngine()


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(text):
    return {"type": "text", "text": text}


async def test_a_message(http, engine):
    response = await http.post(PATH, json=message())
    assert response.status_code == 200
    body = response.json()
    assert body.pop("id").startswith("msg_")
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [text("a b a b a b ")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 6,
        },
    }
    assert not engine.live


async def test_the_same_as_events(http):
    whole = (await http.post(PATH, json=message())).json()
    response = await http.post(PATH, json=message(stream=True))
    assert response.headers["content-type"].startswith("text/event-stream")
    start, block, *deltas, stop, end, last = named_events(response.text)
    begun = start["message"]
    assert (begun["content"], begun["stop_reason"], begun["usage"]["input_tokens"]) == ([], None, 2)
    assert block == {"type": "content_block_start", "index": 0, "content_block": text("")}
    assert "".join(delta["delta"]["text"] for delta in deltas) == whole["content"][0]["text"]
    assert {(delta["type"], delta["index"], delta["delta"]["type"]) for delta in deltas} == {
        ("content_block_delta", 0, "text_delta")
    }
    assert stop == {"type": "content_block_stop", "index": 0}
    assert end == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": whole["usage"],
    }
    assert last == {"type": "message_stop"}


async def test_an_answer_of_nothing(http, engine):
    engine.say = lambda chat, seed: [""]
    assert (await http.post(PATH, json=message())).json()["content"] == []
    events = named_events((await http.post(PATH, json=message(stream=True))).text)
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]


async def test_parameters_reach_the_engine(http, engine):
    asked = message(
        max_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        stop_sequences=["x", "y"],
        metadata={"user_id": "me"},
        service_tier="auto",
        context_management={"edits": []},
    )
    assert (await http.post(PATH, json=asked)).status_code == 200
    params, options = (engine.calls[-1][name] for name in ("params", "options"))
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (7, 0.5, 0.25, 3)
    assert (params.stop, options.tenant) == (("x", "y"), "me")


async def test_null_is_the_default(http, engine):
    names = ("system", "tools", "tool_choice", "thinking", "output_config", "container", "mcp_servers", "metadata")
    more = ("stop_sequences", "temperature", "top_p", "top_k", "stream")
    assert (await http.post(PATH, json=message(**dict.fromkeys((*names, *more))))).status_code == 200
    assert engine.chat.template_kwargs == {}


async def test_a_last_turn_of_the_assistant_is_gone_on_with(http, engine):
    turns = [USER, {"role": "assistant", "content": "b c"}]
    assert (await http.post(PATH, json=message(messages=turns))).status_code == 200
    assert not engine.chat.add_generation_prompt
    assert engine.chat.continue_final_message
    for turns in ([USER], [USER, {"role": "assistant", "content": ""}]):
        assert (await http.post(PATH, json=message(messages=turns))).status_code == 200
        assert engine.chat.messages == [USER]
        assert engine.chat.add_generation_prompt
        assert not engine.chat.continue_final_message


@pytest.mark.parametrize(("thinking", "wanted"), [("enabled", True), ("adaptive", True), ("disabled", False)])
async def test_thinking_is_the_templates_business(http, engine, thinking, wanted):
    asked = message(thinking={"type": thinking, "budget_tokens": 1024})
    assert (await http.post(PATH, json=asked)).status_code == 200
    assert engine.chat.template_kwargs["enable_thinking"] is wanted


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        (None, True),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
        ({"type": "disabled"}, False),
    ],
)
async def test_thinking_is_a_block_of_its_own(http, engine, thinking, shown, stream):
    engine.special = {"<think>": 1, "</think>": 2}
    engine.say = lambda chat, seed: ["<think>", "hm", "</think>", "\n\n", "so"]
    response = await http.post(PATH, json=message(thinking=thinking, stream=stream))
    if stream:
        events = named_events(response.text)
        kinds = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(delta.get("thinking", "") for delta in deltas) == ("hm" if shown else "")
    else:
        kinds = [block["type"] for block in response.json()["content"]]
        assert not shown or response.json()["content"][0]["thinking"] == "hm"
    assert kinds == (["thinking", "text"] if shown else ["text"])


async def test_a_schema_for_the_output(http, engine):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = message(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert (await http.post(PATH, json=asked)).status_code == 200
    form = engine.calls[-1]["params"].structured_output
    assert isinstance(form, StructuredOutput)
    assert (form.kind, json.loads(form.source)) == ("json_schema", schema)


async def test_the_context_ends_before_max_tokens(http, engine):
    engine.say = lambda chat, seed: ["x"] * 5000
    long = message(max_tokens=32000)
    reply = (await http.post(PATH, json=long)).json()
    assert engine.calls[-1]["params"].max_tokens == 4096 - 2
    assert (reply["stop_reason"], reply["usage"]["output_tokens"]) == ("model_context_window_exceeded", 4094)
    reply = (await http.post(PATH, json=message(max_tokens=3))).json()
    assert (reply["stop_reason"], reply["content"]) == ("max_tokens", [text("xxx")])


async def test_counting_tokens(http, engine):
    asked = {"model": "fake", "messages": [USER], "system": "be brief"}
    response = await http.post(f"{PATH}/count_tokens", json=asked)
    assert (response.status_code, response.json()) == (200, {"input_tokens": 4})
    assert not engine.calls


BAD = [
    ("messages: is empty", {"messages": []}),
    ("messages: is empty", {"messages": [], "system": "a"}),
    ("messages:", {"messages": "a"}),
    ("messages[0].role:", {"messages": [{"role": "tool", "content": "a"}]}),
    ("messages[0].content:", {"messages": [{"role": "user", "content": []}]}),
    ("messages[0].content:", {"messages": [{"role": "user"}]}),
    ("messages[0].content[0].text:", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ("messages[0].content[0].type: image", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
    ("messages[0].content[0].type: document", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}),
    ("messages[1].content[0].type: tool_result", {"messages": [USER, assistant({"type": "tool_result"})]}),
    ("messages[1].content[0].name:", {"messages": [USER, assistant({"type": "tool_use", "id": "a"}), USER]}),
    ("messages[1].content[0].thinking:", {"messages": [USER, assistant({"type": "thinking"})]}),
    (
        "messages[1].content[0].input:",
        {"messages": [USER, assistant({"type": "tool_use", "id": "a", "name": "b", "input": [1]}), USER]},
    ),
    ("messages: the last", {"messages": [USER, assistant({"type": "tool_use", "id": "a", "name": "b", "input": {}})]}),
    (
        "messages[0].content[0].tool_use_id:",
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "a"}]}]},
    ),
    (
        "messages[0].content[0].content[0].type: image",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}],
                }
            ]
        },
    ),
    ("system[0].type: image", {"system": [{"type": "image"}]}),
    ("system:", {"system": 1}),
    ("tools[0].type: web_search_20250305", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ("tools[0].input_schema", {"tools": [{"name": "a"}]}),
    ("tools[0].input_schema", {"tools": [{"name": "a", "input_schema": None}]}),
    ("tools[0].input_schema", {"tools": [{"name": "a", "input_schema": [1]}]}),
    ("tools[0].name", {"tools": [{"name": "a b", "input_schema": {}}]}),
    ("tool_choice", {"tool_choice": {"type": "any"}}),
    ("tool_choice", {"tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "b"}}),
    ("tools[0].name:", {"tools": [{"input_schema": {}}]}),
    ("tool_choice.type:", {"tool_choice": {"type": "required"}}),
    ("tool_choice.name:", {"tool_choice": {"type": "tool"}}),
    ("thinking.type:", {"thinking": {"type": "deep"}}),
    ("output_config.effort:", {"output_config": {"effort": "huge"}}),
    ("output_config.format.type:", {"output_config": {"format": {"type": "json_object"}}}),
    ("output_config.format.schema", {"output_config": {"format": {"type": "json_schema"}}}),
    ("output_config.format.schema", {"output_config": {"format": {"type": "json_schema", "schema": [1]}}}),
    ("container", {"container": "c"}),
    ("mcp_servers", {"mcp_servers": [{"url": "x"}]}),
]
BAD_GENERATION = [
    ("max_tokens:", {"max_tokens": 0}),
    ("max_tokens:", {"max_tokens": None}),
    ("temperature", {"temperature": 3}),
    ("top_p", {"top_p": 0}),
    ("stop_sequences", {"stop_sequences": [""]}),
    ("stop_sequences", {"stop_sequences": "a"}),
    ("metadata.user_id", {"metadata": {"user_id": "x" * 1000}}),
    ("stream", {"stream": "yes"}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("beginning", "values"), [*BAD, *BAD_GENERATION])
async def test_bad_input(http, engine, beginning, values, stream):
    told = assert_anthropic_error(await http.post(PATH, json=message(stream=stream) | values), 400)
    assert told.startswith(beginning)
    assert not engine.calls


@pytest.mark.parametrize(("beginning", "values"), BAD)
async def test_bad_input_when_counting(http, beginning, values):
    asked = message() | values
    del asked["max_tokens"]
    told = assert_anthropic_error(await http.post(f"{PATH}/count_tokens", json=asked), 400)
    assert told.startswith(beginning)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"model": "fake"}', b'{"model": "\\ud800"}'])
async def test_bodies_that_are_no_request(http, body):
    assert_anthropic_error(await http.post(PATH, content=body), 400)


async def test_missing_fields_are_named(http):
    asked = message()
    del asked["max_tokens"]
    assert assert_anthropic_error(await http.post(PATH, json=asked), 400) == "max_tokens: is required"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequestError("stop is odd", param="stop"), 400, "invalid_request_error"),
        (QueueFullError("64 wait"), 429, "rate_limit_error"),
        (EngineStoppedError("loading"), 503, "overloaded_error"),
        (EngineDeadError("oh"), 500, "api_error"),
        (ZeroDivisionError(), 500, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_of_the_engine(http, engine, error, status, kind, stream):
    engine.refuse[0] = error
    response = await http.post(PATH, json=message(stream=stream))
    told = assert_anthropic_error(response, status, kind)
    assert told
    assert "ZeroDivision" not in told
    assert ("retry-after" in response.headers) == (status in (429, 503))
    if status == 400:
        assert told == "stop_sequences is odd"


async def test_an_unknown_model(http):
    told = assert_anthropic_error(await http.post(PATH, json=message(model="nope")), 404, "not_found_error")
    assert "org/fake-1.5b" in told


async def test_an_error_in_the_middle_of_a_stream(http, engine):
    engine.fail_with, engine.fail_after = RequestFailedError("the row failed"), 2
    response = await http.post(PATH, json=message(stream=True), headers={"x-request-id": "mine"})
    *begun, last = named_events(response.text)
    assert [event["type"] for event in begun][:2] == ["message_start", "content_block_start"]
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "the row failed"},
        "request_id": "mine",
    }


@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
async def test_keys(engine, path):
    async with Http(engine, OpenAISettings(api_keys=["secret"])) as http:
        for headers in ({}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}):
            response = await http.post(path, json=message(), headers=headers)
            assert_anthropic_error(response, 401, "authentication_error")
        for headers in ({"x-api-key": "secret"}, {"authorization": "Bearer secret"}):
            assert (await http.post(path, json=message(), headers=headers)).status_code == 200


async def test_a_body_that_is_too_large(engine):
    async with Http(engine, OpenAISettings(max_body_mb=0.01)) as http:
        asked = message(system="x" * 20_000)
        assert_anthropic_error(await http.post(PATH, json=asked), 413, "request_too_large")


async def test_headers_of_anthropics_clients(http):
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "a,b"}
    assert (await http.post(PATH, json=message(), headers=headers)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_aborts(server, engine, stream):
    engine.gate, engine.gate_after = asyncio.Event(), 1
    async with server.connect() as (_, writer):
        writer.write(raw_request(PATH, message(stream=stream)))
        await until(lambda: engine.waiting == 1)
    await until(lambda: not engine.live)
    assert engine.finished == {"abort": 1}


async def test_version(http):
    assert (await http.get("/version")).json().keys() == {"version"}
