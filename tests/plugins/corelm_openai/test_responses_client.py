"""The official client and /v1/responses."""

import asyncio
import json

import openai
import pytest
from corelm_openai.settings import OpenAISettings
from pydantic import BaseModel
from responses_kit import tool

from corelm.api import RequestFailedError

CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "sky"}}\n</tool_call>'


@pytest.fixture
def settings():
    return OpenAISettings(port=0, api_keys=["secret"], tool_format="hermes")


@pytest.fixture
async def client(server):
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as client:
        yield client


async def test_create_retrieve_delete(client):
    response = await client.responses.create(model="fake", input="a b")
    assert response.output_text == "a b a b a b "
    assert await client.responses.retrieve(response.id) == response
    items = [item async for item in client.responses.input_items.list(response.id, limit=1)]
    assert [item.content[0].text for item in items] == ["a b"]
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_stream(client):
    text = ""
    async with client.responses.stream(model="fake", input="a b", top_logprobs=2) as events:
        async for event in events:
            if event.type == "response.output_text.delta":
                text += event.delta
                assert event.snapshot == text
        final = await events.get_final_response()
    assert final.output_text == text == "a b a b a b "
    assert len(final.output[0].content[0].logprobs) == final.usage.output_tokens


class Answer(BaseModel):
    colour: str
    number: int


async def test_parse(client, engine):
    engine.say = lambda prompt, seed: ['{"colour": "blue", ', '"number": 3}']
    response = await client.responses.parse(model="fake", input="what?", text_format=Answer)
    assert response.output_parsed == Answer(colour="blue", number=3)
    wanted = engine.calls[0]["params"].structured_output
    assert json.loads(wanted.source)["required"] == ["colour", "number"]
    async with client.responses.stream(model="fake", input="what?", text_format=Answer) as events:
        assert (await events.get_final_response()).output_parsed == Answer(colour="blue", number=3)


async def test_tools_round_trip(client, engine):
    engine.say = lambda prompt, seed: list(CALL)
    asked = [{"role": "user", "content": "what colour?"}]
    async with client.responses.stream(model="fake", input=asked, tools=[tool()], store=False) as events:
        arguments = ""
        async for event in events:
            if event.type == "response.function_call_arguments.delta":
                arguments += event.delta
                assert event.snapshot == arguments
        response = await events.get_final_response()
    (call,) = response.output
    assert json.loads(call.arguments) == {"word": "sky"}
    engine.say = lambda prompt, seed: ["blue"]
    asked += [item.model_dump(exclude={"parsed_arguments"}) for item in response.output]
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": "#00f"})
    response = await client.responses.create(model="fake", input=asked, tools=[tool()], store=False)
    assert response.output_text == "blue"


async def test_background(client, engine):
    engine.gate, engine.gate_after = asyncio.Event(), 1
    response = await client.responses.create(model="fake", input="a b", background=True)
    assert response.status == "queued"
    assert (await client.responses.cancel(response.id)).status == "cancelled"
    response = await client.responses.create(model="fake", input="a b", background=True, stream=True)
    engine.gate.set()
    events = [event async for event in response]
    again = await client.responses.retrieve(events[-1].response.id, stream=True, starting_after=2)
    assert [event async for event in again] == events[3:]


async def test_errors(client, engine):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="fake", input="a", temperature=3)
    assert caught.value.param == "temperature"
    engine.fail_with, engine.fail_after = RequestFailedError("the row failed"), 3
    stream = await client.responses.create(model="fake", input="a b", stream=True)
    with pytest.raises(openai.APIError, match="the row failed"):
        async for _ in stream:
            pass
