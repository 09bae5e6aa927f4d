"""/v1/responses, streamed: which events come, and in which order."""

import asyncio
import json

import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error, raw_request, until
from responses_kit import events_of_response, names, respond, responded, streamed, tool

from corelm.api import InvalidRequestError, RequestFailedError

CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "sky"}}\n</tool_call>'
BEGIN = ["created", "in_progress"]
MESSAGE = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]
THOUGHTS = [name.replace("output_text", "reasoning_text") for name in MESSAGE]
CALLING = [
    "output_item.added",
    "function_call_arguments.delta",
    "function_call_arguments.done",
    "output_item.done",
]


@pytest.fixture
def settings():
    return OpenAISettings(port=0, tool_format="hermes", responses_max=3)


def without_ids(value):
    """The same, with times and ids that differ from request to request as None."""
    if isinstance(value, list):
        return list(map(without_ids, value))
    if isinstance(value, dict):
        changing = ("id", "call_id", "created_at", "completed_at")
        return {key: None if key in changing else without_ids(item) for key, item in value.items()}
    return value


async def test_text(http):
    events = await streamed(http)
    assert names(events) == [*BEGIN, *MESSAGE, "completed"]
    assert "".join(event["delta"] for event in events if "delta" in event) == "a b a b a b "
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    assert {event["item_id"] for event in events if "item_id" in event} == {events[-2]["item"]["id"]}
    assert events[-1]["response"]["output"] == [events[-2]["item"]]


async def test_a_body_in_lines_does_not_break_the_lines_of_events(http):
    schema = {"type": "object", "properties": {"a": {"description": "\n\r\u2028"}}}
    form = {"type": "json_schema", "name": "n", "schema": schema}
    body = {
        "model": "fake",
        "input": "a b",
        "stream": True,
        "tools": [tool(parameters=schema)],
        "text": {"format": form},
    }
    for line_end in ("\n", "\r", "\r\n"):
        data = json.dumps(body, indent=2, ensure_ascii=False).replace("\n", line_end)
        answer = await http.post("/v1/responses", content=data)
        events = events_of_response(answer.text)
        assert events[-1]["response"]["tools"][0]["parameters"] == schema
        assert events[-1]["response"]["text"]["format"]["schema"] == schema


async def test_calls(http, engine):
    engine.say = lambda prompt, seed: ["I ", "ask.", *CALL, "\n", *CALL.replace("sky", "sea")]
    events = await streamed(http, tools=[tool()])
    assert names(events) == [*BEGIN, *MESSAGE, *CALLING, *CALLING, "completed"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == [0, 1, 2]
    for index, word in ((1, "sky"), (2, "sea")):
        assert added[index]["item"]["name"] == "look_up"
        assert added[index]["item"]["arguments"] == ""
        deltas = [event["delta"] for event in events if "delta" in event and event["output_index"] == index]
        assert len(deltas) > 1
        assert json.loads("".join(deltas)) == {"word": word}
        item = done[index]["item"]
        assert item["arguments"] == "".join(deltas)
        assert (item["id"], item["call_id"]) == (added[index]["item"]["id"], added[index]["item"]["call_id"])
    assert events[-1]["response"]["output"] == [event["item"] for event in done]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233])
async def test_calls_between_texts_however_they_are_cut(http, engine, size):
    text = f"Now {CALL} and {CALL} then."
    engine.say = lambda prompt, seed: [text[i : i + size] for i in range(0, len(text), size)]
    events = await streamed(http, tools=[tool()])
    output = events[-1]["response"]["output"]
    calls = [item for item in output if item["type"] == "function_call"]
    assert [json.loads(call["arguments"]) for call in calls] == [{"word": "sky"}] * 2
    texts = [part["text"].strip() for item in output if item["type"] == "message" for part in item["content"]]
    assert "".join(texts) == "Nowandthen."
    for index, item in enumerate(output):
        deltas = [event["delta"] for event in events if "delta" in event and event["output_index"] == index]
        assert "".join(deltas) == (item.get("arguments") or item["content"][0]["text"])


async def test_thoughts(engine):
    engine.say = lambda prompt, seed: ["<think>", "hmm ", "so", "</think>", "y", "es"]
    async with Http(engine, OpenAISettings(reasoning_format="think")) as http:
        events = await streamed(http)
    assert names(events) == [*BEGIN, *THOUGHTS, *MESSAGE, "completed"]
    assert "".join(event["delta"] for event in events if event["type"] == "response.reasoning_text.delta") == "hmm so"


@pytest.mark.parametrize("asked", [{}, {"top_logprobs": 2}, {"max_output_tokens": 3}, {"tools": [tool()]}])
async def test_the_last_event_has_the_whole_response(http, engine, asked):
    if "tools" in asked:
        engine.say = lambda prompt, seed: ["x ", *CALL, *CALL]
    whole = await responded(http, **asked)
    events = await streamed(http, **asked)
    last = events[-1]
    assert without_ids(last["response"]) == without_ids(whole)
    assert last["type"] == f"response.{whole['status']}"


async def test_log_probabilities_come_with_their_text(http):
    events = await streamed(http, include=["message.output_text.logprobs"])
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    for event in deltas:
        assert "".join(entry["token"] for entry in event["logprobs"]) == event["delta"]
    (done,) = (event for event in events if event["type"] == "response.output_text.done")
    assert done["logprobs"] == [entry for event in deltas for entry in event["logprobs"]]


async def test_a_failure_before_the_first_event_has_a_status(http, engine):
    engine.refuse[0] = InvalidRequestError("no", param="messages")
    assert_error(await respond(http, stream=True), 400, param="input")


async def test_a_failure_is_told_in_events(http, engine):
    engine.fail_with, engine.fail_after = RequestFailedError("the row failed"), 2
    events = await streamed(http)
    *_, error, failed = events
    assert error["type"] == "error"
    assert error["message"] == error["error"]["message"] == "the row failed"
    assert failed["type"] == "response.failed"
    response = failed["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "the row failed"}
    (item,) = response["output"]
    assert item["status"] == "incomplete"
    assert (await http.get(f"/v1/responses/{response['id']}")).json() == response


async def test_what_is_streamed_is_stored_before_its_end_is_sent(http):
    events = await streamed(http)
    response = events[-1]["response"]
    assert (await http.get(f"/v1/responses/{response['id']}")).json() == response
    events = await streamed(http, store=False)
    assert (await http.get(f"/v1/responses/{events[-1]['response']['id']}")).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_request_and_nothing_is_stored(server, engine, stream):
    engine.gate, engine.gate_after = asyncio.Event(), 1
    async with server.connect() as (reader, writer):
        writer.write(raw_request("/v1/responses", {"model": "fake", "input": "a b", "stream": stream}))
        await until(lambda: engine.waiting)
        if stream:
            await reader.readuntil(b"output_text.delta")
    await until(lambda: not engine.live)
    assert engine.finished == {"abort": 1}
    response_id = engine.calls[0]["request_id"].removesuffix("-0")
    async with server.connect() as (reader, writer):
        writer.write(raw_request(f"/v1/responses/{response_id}", b"", method="GET"))
        assert b" 404 " in await reader.readline()
