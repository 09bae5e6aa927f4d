"""``/v1/embeddings`` before a real engine on the fake executor."""

import asyncio
import base64
import json
import math
import struct
import threading

import httpx
import openai
import pytest
from corelm_openai.settings import OpenAISettings
from helpers import start_engine
from openai_http import Http, RealServer, assert_error, raw_request, until

from corelm.api import SchedulingPolicy
from corelm.testing import FakeExecutor, fake_embedding

SIZE = 8


def vector(text):
    """What the fake executor makes of a text."""
    return struct.unpack(f"<{SIZE}f", fake_embedding(list(text.encode())))


@pytest.fixture
def settings():
    return OpenAISettings(port=0, max_prompts=4)


@pytest.fixture
async def engine():
    engine = await start_engine(FakeExecutor(max_model_len=64))
    yield engine
    await at_rest(engine)
    await engine.stop()


async def at_rest(engine):
    await until(lambda: engine.stats().running == engine.stats().waiting == 0)
    assert engine.stats().free_blocks == engine.stats().total_blocks


@pytest.fixture
async def embed(engine, settings):
    async with Http(engine, settings) as http:

        async def post(**body):
            return await http.post("/v1/embeddings", json={"model": "fake", "input": "text", **body})

        yield post


def floats(reply):
    assert reply.status_code == 200, reply.text
    return [item["embedding"] for item in reply.json()["data"]]


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("text", ["text"]),
        (["one", "two", "one"], ["one", "two", "one"]),
        (list(b"ids"), ["ids"]),
        ([list(b"some"), list(b"ids")], ["some", "ids"]),
    ],
    ids=["string", "strings", "ids", "lists of ids"],
)
async def test_each_form_of_input(embed, given, texts):
    reply = await embed(input=given)
    assert floats(reply) == [pytest.approx(vector(text)) for text in texts]
    body = reply.json()
    assert body.keys() == {"object", "data", "model", "usage"}
    assert (body["object"], body["model"]) == ("list", "fake")
    assert [(item["object"], item["index"]) for item in body["data"]] == [("embedding", i) for i in range(len(texts))]
    count = sum(map(len, texts))
    usage = {"prompt_tokens": count, "total_tokens": count, "prompt_tokens_details": {"cached_tokens": 0}}
    assert body["usage"] == usage


async def test_base64_is_the_same(embed):
    (shown,) = floats(await embed(encoding_format="base64"))
    assert base64.b64decode(shown) == fake_embedding(list(b"text"))
    assert floats(await embed(encoding_format="float")) == floats(await embed(encoding_format=None))


@pytest.mark.parametrize("form", ["float", "base64"])
async def test_fewer_dimensions_have_length_one_again(embed, form):
    (shown,) = floats(await embed(dimensions=3, encoding_format=form))
    numbers = struct.unpack("<3f", base64.b64decode(shown)) if form == "base64" else shown
    first = vector("text")[:3]
    assert numbers == pytest.approx([number / math.hypot(*first) for number in first], rel=1e-6)
    assert floats(await embed(dimensions=SIZE)) == [pytest.approx(vector("text"))]


async def test_truncation_keeps_the_end(embed):
    reply = await embed(input="x" * 100 + "end", truncate_prompt_tokens=3)
    assert floats(reply) == [pytest.approx(vector("end"))]
    assert (await embed(input="x" * 100, truncate_prompt_tokens=-1)).json()["usage"]["prompt_tokens"] == 64


async def test_shared_beginnings_are_counted(embed):
    await embed(input="a long beginning")
    reply = await embed(input=["a long beginning!", "a long beginning?"])
    assert reply.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
    alone = await embed(input="a long beginning!", cache_salt="mine")
    assert alone.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert floats(alone) == floats(reply)[:1]


async def test_null_and_unknown_fields_mean_nothing(embed):
    nothing = dict.fromkeys(
        ["encoding_format", "dimensions", "user", "priority", "cache_salt", "messages", "normalize"]
    )
    reply = await embed(**nothing, unheard_of=1)
    assert floats(reply) == [pytest.approx(vector("text"))]
    neutral = {"normalize": True, "add_special_tokens": True, "embed_dtype": "float32", "endianness": "little"}
    assert floats(await embed(**neutral, user="me")) == floats(reply)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": [""]}, "input"),
        ({"input": ["fine", ""]}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": [1, "a"]}, "input[1]"),
        ({"input": [[1, 2.5]]}, "input[0][1]"),
        ({"input": [1, 258]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": ["a"] * 5}, "input"),
        ({"input": [[1]] * 5}, "input"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": SIZE + 1}, "dimensions"),
        ({"dimensions": -1}, "dimensions"),
        ({"dimensions": 10**30}, "dimensions"),
        ({"dimensions": "3"}, "dimensions"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"priority": 2**31}, "priority"),
        ({"user": "x" * 513}, "user"),
        ({"cache_salt": "x" * 513}, "cache_salt"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages"),
        ({"normalize": False}, "normalize"),
        ({"add_special_tokens": False}, "add_special_tokens"),
        ({"embed_dtype": "int8"}, "embed_dtype"),
        ({"endianness": "big"}, "endianness"),
        ({"model": None}, "model"),
    ],
    ids=str,
)
async def test_what_is_wrong_is_refused_by_name(embed, engine, body, param):
    assert_error(await embed(**body), 400, param=param)
    await at_rest(engine)
    assert floats(await embed()) == [pytest.approx(vector("text"))]


async def test_an_empty_input_is_called_so(embed):
    assert "the input is empty" in assert_error(await embed(input=["fine", ""]), 400)
    assert "must hold at most 4" in assert_error(await embed(input=["a"] * 5), 400)


@pytest.mark.parametrize(
    "given", ["x" * 65, [1] * 65, ["fine", "x" * 65], "x" * 10**6], ids=["text", "ids", "one", "far"]
)
async def test_too_long_says_true_numbers(embed, given):
    message = assert_error(await embed(input=given), 400, param="input", code="context_length_exceeded")
    assert "64 tokens" in message
    assert floats(await embed(input="x" * 64)) == [pytest.approx(vector("x" * 64))]


async def test_input_is_needed_and_the_model_known(engine, settings):
    async with Http(engine, settings) as http:
        assert_error(await http.post("/v1/embeddings", json={"model": "fake"}), 400, param="input")
        reply = await http.post("/v1/embeddings", json={"model": "other", "input": "a"})
        assert_error(reply, 404, param="model", code="model_not_found")
        assert_error(await http.post("/v1/embeddings", content=b"{"), 400)
        assert (await http.get("/v1/embeddings")).status_code == 405


async def test_an_engine_without_them_says_so(settings):
    engine = await start_engine(FakeExecutor(capabilities=frozenset()))
    async with Http(engine, settings) as http:
        for extra in ({}, {"dimensions": 3}):
            reply = await http.post("/v1/embeddings", json={"model": "fake", "input": "a", **extra})
            assert "embeddings are not supported" in assert_error(reply, 400)
    await engine.stop()


async def test_if_one_fails_the_others_end(settings):
    """The queue holds two of three."""
    executor = FakeExecutor()
    engine = await start_engine(executor, max_waiting=2)
    async with Http(engine, settings) as http:
        reply = await http.post("/v1/embeddings", json={"model": "fake", "input": ["a", "b", "c"]})
        assert_error(reply, 429, kind="rate_limit_error", code="queue_full")
        await at_rest(engine)
        assert (await http.post("/v1/embeddings", json={"model": "fake", "input": ["a", "b"]})).status_code == 200
    await engine.stop()


async def test_tenant_session_and_priority_reach_the_policy(settings):
    seen = []

    class Watching(SchedulingPolicy):
        def key(self, request):
            seen.append((request.tenant, request.session, request.priority))
            return 0

    engine = await start_engine(policy=Watching())
    async with Http(engine, settings) as http:
        body = {"model": "fake", "input": "a", "user": "me", "priority": 2}
        await http.post("/v1/embeddings", json=body)
        await http.post("/v1/embeddings", json=body, headers={"x-corelm-tenant": "us", "x-session-id": "s"})
    assert seen == [("me", None, 2), ("us", "s", 2)]
    await engine.stop()


class Held(FakeExecutor):
    """Runs steps once `go` is set."""

    def __init__(self):
        super().__init__(on_step=lambda plan: self.reached.set() or self.go.wait(20))
        self.reached, self.go = threading.Event(), threading.Event()


async def test_a_client_that_leaves_ends_its_requests(settings):
    executor = Held()
    engine = await start_engine(executor)
    async with RealServer(engine, settings) as server:
        async with server.connect() as (_, writer):
            writer.write(raw_request("/v1/embeddings", {"model": "fake", "input": ["a", "b", "c"]}))
            await writer.drain()
            await until(executor.reached.is_set)
        await until(lambda: engine.stats().finished.get("abort") == 3)
        executor.go.set()
        await at_rest(engine)
    await engine.stop()


async def test_the_official_client(engine, settings):
    """Which asks for base64, unless it is told what to ask for."""
    async with (
        RealServer(engine, settings) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client,
    ):
        reply = await client.embeddings.create(model="fake", input=["one", "two"])
        assert [item.embedding for item in reply.data] == [pytest.approx(vector("one")), pytest.approx(vector("two"))]
        assert reply.usage.prompt_tokens == 6
        same = await client.embeddings.create(model="fake", input=["one", "two"], encoding_format="float")
        assert [item.embedding for item in same.data] == [pytest.approx(item.embedding) for item in reply.data]
        short = await client.embeddings.create(model="fake", input="one", dimensions=2)
        assert len(short.data[0].embedding) == 2
        with pytest.raises(openai.BadRequestError) as caught:
            await client.embeddings.create(model="fake", input="one", dimensions=9)
        assert caught.value.param == "dimensions"


async def test_many_prompts_do_not_hold_up_the_server():
    """Health is told while another thread tokenises, and while the reply is put together."""
    engine = await start_engine(FakeExecutor(num_blocks=4096, max_model_len=512), max_num_batched_tokens=2048)
    settings = OpenAISettings(port=0)
    async with RealServer(engine, settings) as server, httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        body = json.dumps({"model": "fake", "input": [f"{number} {'x' * 60}" for number in range(256)]})
        task = asyncio.create_task(http.post("/v1/embeddings", content=body))
        while not task.done():
            async with asyncio.timeout(5):
                assert (await http.get("/health")).status_code == 200
        assert len(floats(task.result())) == 256
    await at_rest(engine)
    await engine.stop()
