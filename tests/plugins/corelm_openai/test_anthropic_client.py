"""Anthropic's own client against the real server."""

import asyncio

import anthropic
import pytest
from anthropic_fakes import ChatEngine
from corelm_openai.settings import OpenAISettings
from openai_http import until

from corelm.api import EngineStoppedError, QueueFullError, RequestFailedError

ASKED = {"model": "fake", "max_tokens": 50, "messages": [{"role": "user", "content": "one two"}]}
ADD = {
    "name": "add",
    "description": "Adds two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


@pytest.fixture
def engine():
    return ChatEngine()


@pytest.fixture
def settings():
    return OpenAISettings(port=0, api_keys=["secret"])


@pytest.fixture
async def client(server):
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="secret", max_retries=0) as client:
        yield client


async def test_a_message(client):
    reply = await client.messages.create(**ASKED, system="be brief")
    assert (reply.role, reply.model, reply.stop_reason) == ("assistant", "fake", "end_turn")
    assert [block.text for block in reply.content] == ["be brief one two " * 3]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (4, 12)
    assert reply._request_id.startswith("req_")


async def test_models(client):
    assert [model.id async for model in client.models.list()] == ["fake", "org/fake-1.5b"]


async def test_without_asyncio(server):
    def ask():
        with anthropic.Anthropic(base_url=server.url, api_key="secret", max_retries=0) as client:
            reply = client.messages.create(**ASKED)
            with client.messages.stream(**ASKED) as stream:
                return reply, "".join(stream.text_stream), stream.get_final_message()

    reply, text, final = await asyncio.to_thread(ask)
    assert reply.content[0].text == text == final.content[0].text == "one two " * 3


async def test_a_stream(client):
    whole = await client.messages.create(**ASKED)
    async with client.messages.stream(**ASKED) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert text == whole.content[0].text
    assert final.model_dump(exclude={"id"}) | {"content": None} == whole.model_dump(exclude={"id"}) | {"content": None}
    kinds = [event.type async for event in await client.messages.create(**ASKED, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_counting(client):
    asked = {name: value for name, value in ASKED.items() if name != "max_tokens"}
    assert (await client.messages.count_tokens(**asked, system="be brief")).input_tokens == 4


async def test_tools_there_and_back(client, engine):
    engine.say = lambda chat, seed: [CALL[start : start + 5] for start in range(0, len(CALL), 5)]
    asked = ASKED | {"tools": [ADD], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    reply = await client.messages.create(**asked)
    (call,) = reply.content
    assert (reply.stop_reason, call.type, call.name, call.input) == ("tool_use", "tool_use", "add", {"a": 1, "b": 2})
    assert call.id.startswith("toolu_")
    async with client.messages.stream(**asked) as stream:
        final = await stream.get_final_message()
    assert (final.stop_reason, final.content[0].name, final.content[0].input) == ("tool_use", "add", {"a": 1, "b": 2})
    engine.say = lambda chat, seed: ["it ", "is ", "3"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "3"}
    turns = [
        *ASKED["messages"],
        {"role": "assistant", "content": reply.content},
        {"role": "user", "content": [result]},
    ]
    reply = await client.messages.create(**asked | {"messages": turns, "tool_choice": {"type": "auto"}})
    assert (reply.stop_reason, reply.content[0].text) == ("end_turn", "it is 3")
    assert [message["role"] for message in engine.chat.messages] == ["user", "assistant", "tool"]
    assert engine.chat.messages[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1, "b": 2}}
    assert engine.chat.messages[2]["tool_call_id"] == engine.chat.messages[1]["tool_calls"][0]["id"]
    assert engine.chat.tools[0]["function"]["name"] == "add"


async def test_tools_that_the_client_runs(client, engine):
    """With the fields and blocks of a beta version."""

    @anthropic.beta_async_tool
    async def add(a: int, b: int) -> str:
        """Adds two numbers."""
        return str(a + b)

    engine.say = lambda chat, seed: [CALL] if chat.messages[-1]["role"] == "user" else [chat.messages[-1]["content"]]
    runner = client.beta.messages.tool_runner(**ASKED, tools=[add], betas=["some-beta"])
    replies = [reply async for reply in runner]
    assert [reply.stop_reason for reply in replies] == ["tool_use", "end_turn"]
    assert replies[-1].content[0].text == "3"


async def test_errors_arrive_as_the_clients_own(client, engine):
    with pytest.raises(anthropic.BadRequestError) as caught:
        await client.messages.create(**ASKED, extra_body={"temperature": 3})
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id.startswith("req_")
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(**ASKED | {"model": "nope"})
    with pytest.raises(anthropic.AuthenticationError):
        await client.with_options(api_key="wrong").messages.create(**ASKED)
    engine.refuse = {0: EngineStoppedError("not now"), 1: QueueFullError("64 requests wait")}
    with pytest.raises(anthropic.InternalServerError) as caught:
        await client.messages.create(**ASKED)
    assert (caught.value.status_code, caught.value.type) == (503, "overloaded_error")
    with pytest.raises(anthropic.RateLimitError):
        await client.messages.create(**ASKED)


async def test_an_error_event_raises(client, engine):
    engine.fail_with, engine.fail_after = RequestFailedError("the row failed"), 3
    async with client.messages.stream(**ASKED) as stream:
        with pytest.raises(anthropic.APIStatusError, match="the row failed"):
            await stream.get_final_message()


async def test_closing_a_stream_aborts(client, engine):
    engine.gate, engine.gate_after = asyncio.Event(), 1
    stream = await client.messages.create(**ASKED, stream=True)
    async for _ in stream:
        break
    await stream.close()
    await until(lambda: not engine.live)
    assert engine.finished == {"abort": 1}
