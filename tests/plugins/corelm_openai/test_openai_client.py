"""The official client against the real server."""

import asyncio

import openai
import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import until

from corelm.api import EngineStoppedError, QueueFullError, RequestFailedError

MESSAGES = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "one two"}]


@pytest.fixture
def settings():
    return OpenAISettings(port=0, api_keys=["secret"])


@pytest.fixture
async def client(server):
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as client:
        yield client


async def test_models(client):
    assert [model.id async for model in client.models.list()] == ["fake", "org/fake-1.5b"]
    assert (await client.models.retrieve("org/fake-1.5b")).owned_by == "corelm"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("nope")
    assert caught.value.code == "model_not_found"


async def test_chat(client):
    reply = await client.chat.completions.create(model="fake", messages=MESSAGES, n=2, seed=1)
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert reply.choices[1].message.content == "be/2 brief/2 one/2 two/2 " * 3
    assert reply.usage.total_tokens == 4 + 24
    stream = client.chat.completions.stream(
        model="fake", messages=MESSAGES, n=2, seed=1, stream_options={"include_usage": True}
    )
    async with stream as events:
        final = await events.get_final_completion()
    assert [choice.message.content for choice in final.choices] == [choice.message.content for choice in reply.choices]
    assert [choice.finish_reason for choice in final.choices] == ["stop", "stop"]
    assert final.usage == reply.usage


async def test_completions(client):
    reply = await client.completions.create(model="fake", prompt=["a", "b"], max_tokens=2)
    assert [choice.text for choice in reply.choices] == ["a a ", "b b "]
    assert [choice.finish_reason for choice in reply.choices] == ["length", "length"]
    texts = {0: "", 1: ""}
    async for chunk in await client.completions.create(model="fake", prompt=["a", "b"], max_tokens=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: "a a ", 1: "b b "}


async def test_logprobs(client):
    asked = {"model": "fake", "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
    reply = await client.chat.completions.create(**asked)
    content = reply.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == reply.choices[0].message.content
    assert [len(entry.top_logprobs) for entry in content] == [2] * reply.usage.completion_tokens
    async with client.chat.completions.stream(**asked) as events:
        final = await events.get_final_completion()
    assert final.choices[0].logprobs == reply.choices[0].logprobs
    reply = await client.completions.create(model="fake", prompt="one two", logprobs=2, echo=True)
    logprobs = reply.choices[0].logprobs
    assert "".join(logprobs.tokens) == reply.choices[0].text
    assert [logprobs.text_offset[1], logprobs.token_logprobs[0]] == [4, None]


async def test_errors_arrive_as_the_clients_own(client, engine, server):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="fake", messages=MESSAGES, temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        await client.completions.create(model="nope", prompt="a")
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    engine.refuse[0] = EngineStoppedError("not now")
    with pytest.raises(openai.InternalServerError) as caught:
        await client.completions.create(model="fake", prompt="a")
    assert caught.value.status_code == 503
    engine.refuse[1] = QueueFullError("64 requests wait")
    with pytest.raises(openai.RateLimitError) as caught:
        await client.completions.create(model="fake", prompt="a")
    assert caught.value.code == "queue_full"


async def test_an_error_event_raises(client, engine):
    engine.fail_with, engine.fail_after = RequestFailedError("the row failed"), 3
    stream = await client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
    text = ""
    while text != "be brief one ":
        text += (await anext(stream)).choices[0].delta.content
    with pytest.raises(openai.APIError, match="the row failed"):
        await anext(stream)


async def test_closing_a_stream_aborts(client, engine):
    engine.gate, engine.gate_after = asyncio.Event(), 1
    stream = await client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
    async for _ in stream:
        break
    await stream.close()
    await until(lambda: not engine.live)
    assert engine.finished == {"abort": 1}
