"""Tokenising and detokenising for clients."""

import asyncio
import threading

import pytest
from helpers import greedy, start_engine

from corelm.api import Chat, EngineStoppedError, InvalidRequestError, RequestFailedError
from corelm.engine.async_engine import AsyncEngine
from corelm.testing import FakeExecutor, FakeTokenizer

BOS, EOS = 256, 257
CHAT = Chat(messages=[{"role": "user", "content": "hi"}])


class WithPrefix(FakeTokenizer):
    """Begins every text with ``<bos>``, as most tokenizers of models do."""

    def encode(self, text, *, add_special_tokens=True):
        return [BOS] * add_special_tokens + super().encode(text)


@pytest.fixture
async def engine():
    engine = await start_engine(FakeExecutor(max_model_len=40), tokenizer=WithPrefix())
    yield engine
    await engine.stop()


@pytest.mark.parametrize("prompt", ["", "héllo", [1, BOS, 2], CHAT], ids=["empty", "text", "ids", "chat"])
async def test_tokens_are_those_that_generate_takes(engine, prompt):
    tokens = await engine.tokenize(prompt)
    output = await (await engine.generate(prompt, greedy(max_tokens=1))).result()
    assert output.prompt_tokens == len(tokens)
    again = await (await engine.generate(tokens, greedy(max_tokens=1))).result()
    assert again.token_ids == output.token_ids


async def test_special_tokens_can_be_left_out(engine):
    assert await engine.tokenize("ab") == [BOS, 97, 98]
    assert await engine.tokenize("ab", add_special_tokens=False) == [97, 98]
    assert await engine.tokenize("", add_special_tokens=False) == []


async def test_the_generation_prompt_is_up_to_the_chat(engine):
    opened = await engine.tokenize(CHAT)
    closed = await engine.tokenize(Chat(messages=CHAT.messages, add_generation_prompt=False))
    assert opened == closed + list(b"assistant: ")


async def test_text_and_back(engine):
    text = "naïve 🙂"
    tokens = await engine.tokenize(text)
    assert await engine.detokenize(tokens) == f"<bos>{text}"
    assert await engine.detokenize([]) == ""
    assert await engine.detokenize(tokens[:-1]) == "<bos>naïve \ufffd"  # part of a character
    assert b"".join(await engine.token_bytes(tokens)) == f"<bos>{text}".encode()


@pytest.mark.parametrize("token", [-1, 258, 2**40])
async def test_unknown_tokens_are_named(engine, token):
    with pytest.raises(InvalidRequestError, match=f"token id {token} is outside the vocabulary") as refusal:
        await engine.detokenize([97, token])
    assert refusal.value.param == "tokens"


async def test_more_tokens_than_the_context_holds(engine):
    with pytest.raises(InvalidRequestError, match="41") as refusal:
        await engine.detokenize([97] * 41)
    assert refusal.value.param == "tokens"
    assert refusal.value.code == "context_length_exceeded"
    assert await engine.detokenize([97] * 40) == "a" * 40


@pytest.mark.parametrize("tokens", [[1.0], ["a"], [True], "text", b"ab", None])
async def test_tokens_are_integers(engine, tokens):
    with pytest.raises(InvalidRequestError):
        await engine.detokenize(tokens)


@pytest.mark.parametrize(
    "prompt",
    ["a" * 40, [97] * 41, Chat(messages=[{"role": "user", "content": "a" * 40}])],
    ids=["text", "ids", "chat"],
)
async def test_more_than_the_context_holds_is_refused(engine, prompt):
    with pytest.raises(InvalidRequestError, match="the model's context holds 40 tokens") as refusal:
        await engine.tokenize(prompt)
    assert refusal.value.code == "context_length_exceeded"
    assert len(await engine.tokenize("a" * 39)) == 40


@pytest.mark.parametrize("prompt", ["a" * 10**6, Chat(messages=[{"role": "user", "content": "a" * 10**6}])])
async def test_what_is_far_too_long_is_not_encoded(prompt):
    class Untouched(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            raise AssertionError("encoded")

        render_chat = encode

    engine = await start_engine(FakeExecutor(max_model_len=40), tokenizer=Untouched())
    with pytest.raises(InvalidRequestError, match=r"a prompt of 100000[04] characters"):
        await engine.tokenize(prompt)
    await engine.stop()


async def test_the_event_loop_goes_on_meanwhile():
    started, gate = threading.Event(), threading.Event()

    class Slow(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            started.set()
            assert gate.wait(20)
            return super().encode(text)

    engine = await start_engine(tokenizer=Slow())
    task = asyncio.create_task(engine.tokenize("a"))
    assert await asyncio.to_thread(started.wait, 10)
    await engine.check_health()
    assert await engine.detokenize([97]) == "a"  # in another thread
    gate.set()
    assert await task == [97]
    await engine.stop()


async def test_tokenising_has_a_time_limit():
    gate = threading.Event()

    class Hangs(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            gate.wait(20)
            return super().encode(text)

    engine = await start_engine(tokenizer=Hangs(), iteration_timeout_s=0.1)
    with pytest.raises(RequestFailedError, match="tokenised"):
        await engine.tokenize("a")
    gate.set()
    await engine.stop()


async def test_nothing_before_the_model_is_loaded():
    engine = AsyncEngine(lambda progress: pytest.fail("not loaded"), names=["m"])
    for call in (engine.tokenize("a"), engine.detokenize([1]), engine.embed("a")):
        with pytest.raises(EngineStoppedError, match="loading"):
            await call
    await engine.stop()
