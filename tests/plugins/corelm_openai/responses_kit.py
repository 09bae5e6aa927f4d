"""For tests of /v1/responses: asking, and the official client's types to check what comes."""

import json
from typing import get_args

from openai.types.responses import Response, ResponseStreamEvent

EVENTS = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(get_args(ResponseStreamEvent)[0])
}
"""The client's types of events by name."""


async def respond(http, **body):
    return await http.post("/v1/responses", json={"model": "fake", "input": "a b", **body})


async def responded(http, **body):
    """A response as JSON, which the official client's type takes."""
    answer = await respond(http, **body)
    assert answer.status_code == 200, answer.text
    Response.model_validate(answer.json())
    return answer.json()


async def streamed(http, **body):
    """The events of a response."""
    answer = await respond(http, stream=True, **body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8", answer.text
    return events_of_response(answer.text)


def events_of_response(text, first=0):
    """The events in a stream's text: numbered, named by their type, and such that the official client takes them."""
    lines = text.splitlines()
    assert len(lines) % 3 == 0
    assert lines[2::3] == [""] * (len(lines) // 3)
    events = [json.loads(line.removeprefix("data: ")) for line in lines[1::3]]
    for number, (event, name) in enumerate(zip(events, lines[::3], strict=True), first):
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        EVENTS[event["type"]].model_validate(event)
        if "response" in event:
            Response.model_validate(event["response"])
    return events


def names(events):
    """The types of events without what they have in common, repeated ones once."""
    found = []
    for event in events:
        name = event["type"].removeprefix("response.")
        if not found or found[-1] != name:
            found.append(name)
    return found


def text_of(response):
    """The text of all messages."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def tool(name="look_up", **fields):
    parameters = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    return {"type": "function", "name": name, "parameters": parameters, **fields}
