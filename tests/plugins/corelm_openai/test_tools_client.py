"""The official client: calls of tools, parsed answers and thoughts, from a real server."""

import openai
import pytest
from corelm_openai.settings import OpenAISettings
from pydantic import BaseModel

MESSAGES = [{"role": "user", "content": "How is it in Rome?"}]
PIECES = [
    *("<think>Where", " is it?</think>", "I look.", "\n<tool_call>", '\n{"name": "Weather", "argum', 'ents": {"pl'),
    *('ace": "Rome", "days', '": 2}}\n</tool', '_call>\n<tool_call>{"name": "Time", "arguments": {', "}}</tool_call>"),
]


class Weather(BaseModel):
    """Weather of a place."""

    place: str
    days: int


class Time(BaseModel):
    """The time."""


TOOLS = [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Time)]


@pytest.fixture
def settings():
    return OpenAISettings(port=0, reasoning_format="think")


@pytest.fixture
async def client(server):
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def check(message):
    assert message.content == "I look."
    assert message.reasoning_content == "Where is it?"
    first, second = message.tool_calls
    assert first.function.parsed_arguments == Weather(place="Rome", days=2)
    assert second.function.parsed_arguments == Time()
    assert first.id != second.id


async def test_calls_are_parsed(client, engine):
    engine.say = lambda prompt, seed: PIECES
    completion = await client.chat.completions.parse(model="fake", messages=MESSAGES, tools=TOOLS)
    assert completion.choices[0].finish_reason == "tool_calls"
    check(completion.choices[0].message)
    described = engine.rendered[-1].tools[0]["function"]
    assert described["description"] == "Weather of a place."
    assert described["parameters"]["required"] == ["place", "days"]


async def test_streamed_calls_are_parsed(client, engine):
    engine.say = lambda prompt, seed: PIECES
    arguments = ["", ""]
    async with client.chat.completions.stream(model="fake", messages=MESSAGES, tools=TOOLS) as stream:
        async for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                arguments[event.index] += event.arguments_delta
        completion = await stream.get_final_completion()
    assert completion.choices[0].finish_reason == "tool_calls"
    message = completion.choices[0].message
    check(message)
    assert arguments == [call.function.arguments for call in message.tool_calls]


async def test_the_message_can_be_sent_back(client, engine):
    engine.say = lambda prompt, seed: PIECES
    completion = await client.chat.completions.create(model="fake", messages=MESSAGES, tools=TOOLS)
    message = completion.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "fine"} for call in message.tool_calls]
    await client.chat.completions.create(model="fake", messages=[*MESSAGES, message, *results], tools=TOOLS)
    _, told, result, _ = engine.rendered[-1].messages
    assert told["tool_calls"][0]["function"] == {"name": "Weather", "arguments": {"place": "Rome", "days": 2}}
    assert result["tool_call_id"] == told["tool_calls"][0]["id"]


async def test_answers_of_a_class_are_parsed(client, engine):
    engine.say = lambda prompt, seed: ['{"place": "Rome"', ', "days": 3}']
    asked = {"model": "fake", "messages": MESSAGES, "response_format": Weather}
    completion = await client.chat.completions.parse(**asked)
    assert completion.choices[0].message.parsed == Weather(place="Rome", days=3)
    async with client.chat.completions.stream(**asked) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.parsed == Weather(place="Rome", days=3)
    assert engine.calls[0]["params"].structured_output.kind == "json_schema"


async def test_errors_name_the_field(client):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="fake", messages=MESSAGES, tool_choice="required")
    assert caught.value.param == "tool_choice"
