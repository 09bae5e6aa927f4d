"""Conversations that are too long, and truncation."""

import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import assert_error
from responses_kit import respond, responded

from corelm.api import InvalidRequestError

LIMIT = 4096


@pytest.fixture
def settings():
    return OpenAISettings(tool_format="hermes")


@pytest.fixture
def engine(engine, monkeypatch):
    """One that refuses to tokenize, and to take, what is longer than the context."""
    tokenize, generate = engine.tokenize, engine.generate
    engine.say = lambda prompt, seed: ["ok"]
    engine.tokenized = 0

    def check(token_ids):
        if len(token_ids) > LIMIT:
            code = "context_length_exceeded"
            raise InvalidRequestError(f"the prompt has {len(token_ids)}", param="messages", code=code)
        return token_ids

    async def checked_tokenize(prompt, **options):
        engine.tokenized += 1
        return check(await tokenize(prompt, **options))

    async def checked_generate(prompt, params, **options):
        check(engine._tokens(prompt))
        return await generate(prompt, params, **options)

    monkeypatch.setattr(engine, "tokenize", checked_tokenize)
    monkeypatch.setattr(engine, "generate", checked_generate)
    return engine


def words(number, count):
    return {"role": "user", "content": f"m{number} " * count}


def sent(engine):
    return [(message["content"] or "").split(" ")[0] for message in engine.calls[-1]["prompt"].messages]


async def test_without_it_too_much_is_refused(http):
    message = assert_error(
        await respond(http, input=[words(0, LIMIT + 1)]), 400, param="input", code="context_length_exceeded"
    )
    assert str(LIMIT + 1) in message


@pytest.mark.parametrize(("count", "first"), [(3, 0), (4, 0), (5, 1), (9, 5), (40, 36)])
async def test_as_much_as_fits_is_kept(http, engine, count, first):
    await responded(http, input=[words(number, 1000) for number in range(count)], truncation="auto")
    assert sent(engine) == [f"m{number}" for number in range(first, count)]


async def test_instructions_stay_and_the_output_has_room(http, engine):
    asked = {"instructions": "i", "truncation": "auto", "input": [words(number, 1000) for number in range(5)]}
    await responded(http, **asked, max_output_tokens=90)
    assert sent(engine) == ["i", "m1", "m2", "m3", "m4"]
    await responded(http, **asked, max_output_tokens=100)
    assert sent(engine) == ["i", "m2", "m3", "m4"]


async def test_a_conversation_does_not_begin_with_the_output_of_a_call(http, engine):
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "o " * 2000}
    await responded(http, input=[words(0, 2000), call, output, words(1, 2000)], truncation="auto")
    assert sent(engine) == ["", "o", "m1"]
    await responded(http, input=[words(0, 2000), call, output, words(1, 2100)], truncation="auto")
    assert sent(engine) == ["m1"]


async def test_the_last_message_alone_can_be_too_long(http):
    answer = await respond(http, input=[words(0, 1), words(1, LIMIT + 1)], truncation="auto")
    assert_error(answer, 400, param="input", code="context_length_exceeded")


async def test_a_long_conversation_is_not_tokenized_often(http, engine):
    await responded(http)
    before = engine.tokenized
    await responded(http, input=[words(number, 100) for number in range(1000)], truncation="auto")
    assert engine.tokenized - before <= 12
