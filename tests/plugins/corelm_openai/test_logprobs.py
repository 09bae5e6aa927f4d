"""Log-probabilities of the output and of the prompt."""

import json
import math

import pytest
from openai_http import assert_error, events_of

SPLIT = [("caf", b"caf"), ("", b"\xc3"), ("é", b"\xa9"), ("", b" \xe2"), ("", b"\x80"), (" “", b"\x9c"), ("", b"<end>")]
"""Characters over several tokens, text that is held back, and an end token without text."""


@pytest.fixture
def split(engine):
    engine.say = lambda prompt, seed: SPLIT


def strict(response):
    """The body of a reply, which must be JSON without the numbers that JSON has not."""

    def refuse(name):
        raise AssertionError(name)

    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=refuse)


def streamed(events, field):
    """The pieces of one field of all log-probabilities, joined for each choice."""
    joined = {}
    for event in events:
        for choice in event["choices"]:
            joined.setdefault(choice["index"], [])
            if choice["logprobs"]:
                joined[choice["index"]] += choice["logprobs"][field]
    return joined


async def test_shape_in_chat(http, split):
    body = strict(await http.chat(logprobs=True, top_logprobs=2))
    (choice,) = body["choices"]
    assert choice["logprobs"].keys() == {"content", "refusal"}
    content = choice["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"]
    assert content[0] == {
        "token": "caf",
        "logprob": -7.0,
        "bytes": list(b"caf"),
        "top_logprobs": [
            {"token": "<0>", "logprob": -0.125, "bytes": list(b"<0>")},
            {"token": "<1>", "logprob": -0.25, "bytes": list(b"<1>")},
        ],
    }
    assert content[1]["top_logprobs"][0] == {"token": "bytes:\\xc3", "logprob": -0.125, "bytes": [0xC3]}
    assert [entry["token"] for entry in content[2:5]] == ["bytes:\\xa9", "bytes:\\x20\\xe2", "bytes:\\x80"]
    raw = b"".join(bytes(entry["bytes"]) for entry in content[:-1])
    assert raw.decode() == choice["message"]["content"] == "café “"
    for entry in content:
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("asked", [{"logprobs": True}, {"logprobs": True, "top_logprobs": 0}])
async def test_no_alternatives_unless_asked(http, engine, asked):
    content = strict(await http.chat(**asked))["choices"][0]["logprobs"]["content"]
    assert len(content) == 6
    assert all(entry["top_logprobs"] == [] for entry in content)
    assert engine.calls[0]["params"].logprobs == 0


async def test_none_unless_asked(http, engine):
    for asked in ({}, {"logprobs": False, "top_logprobs": 0}):
        assert strict(await http.chat(**asked))["choices"][0]["logprobs"] is None
    assert strict(await http.complete())["choices"][0]["logprobs"] is None
    assert {call["params"].logprobs for call in engine.calls} == {None}
    assert not engine.asked_tokens


@pytest.mark.parametrize(
    "asked", [{"logprobs": True, "top_logprobs": value} for value in (-1, 21, 10**5)] + [{"top_logprobs": 1}]
)
async def test_alternatives_out_of_range(http, engine, asked):
    assert "top_logprobs" in assert_error(await http.chat(**asked), 400, param="top_logprobs")
    assert not engine.calls


async def test_wrong_types(http):
    for value in (5, "true"):
        assert_error(await http.chat(logprobs=value), 400, param="logprobs")
    for value in (True, "1", 1.5, -1, 21, 10**6):
        assert_error(await http.complete(logprobs=value), 400, param="logprobs")
    assert_error(await http.chat(logprobs=True, top_logprobs="1"), 400, param="top_logprobs")


@pytest.mark.parametrize("n", [1, 3])
async def test_a_chat_stream_has_the_same_ones_once(http, split, n):
    asked = {"n": n, "logprobs": True, "top_logprobs": 1}
    whole = strict(await http.chat(**asked))
    *events, done = events_of((await http.chat(stream=True, **asked)).text)
    assert done == "[DONE]"
    joined = streamed(events, "content")
    assert [joined[index] for index in range(n)] == [choice["logprobs"]["content"] for choice in whole["choices"]]
    assert sum(map(len, joined.values())) == whole["usage"]["completion_tokens"]
    for event in events:
        for choice in event["choices"]:
            has_content = bool(choice["delta"].get("content")) or bool((choice["logprobs"] or {}).get("content"))
            assert has_content or "role" in choice["delta"] or choice["finish_reason"]


@pytest.mark.parametrize("n", [1, 3])
async def test_a_completion_stream_has_the_same_ones_once(http, split, n):
    asked = {"n": n, "logprobs": 1, "prompt": ["a", "b"]}
    whole = strict(await http.complete(**asked))
    *events, _ = events_of((await http.complete(stream=True, **asked)).text)
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = streamed(events, field)
        assert [joined[index] for index in range(2 * n)] == [choice["logprobs"][field] for choice in whole["choices"]]


async def test_shape_in_completions(http, split):
    (choice,) = strict(await http.complete(logprobs=1))["choices"]
    assert choice["logprobs"] == {
        "tokens": ["caf", *(f"bytes:{code}" for code in ("\\xc3", "\\xa9", "\\x20\\xe2", "\\x80", "\\x9c")), "<end>"],
        "token_logprobs": [-7.0, -0.125, -9.0, -0.125, -11.0, -0.125, -13.0],
        "top_logprobs": [
            {"<0>": -0.125, "caf": -7.0},
            {"bytes:\\xc3": -0.125},
            {"<0>": -0.125, "bytes:\\xa9": -9.0},
            {"bytes:\\x20\\xe2": -0.125},
            {"<0>": -0.125, "bytes:\\x80": -11.0},
            {"bytes:\\x9c": -0.125},
            {"<0>": -0.125, "<end>": -13.0},
        ],
        "text_offset": [0, 3, 3, 4, 5, 5, 6],
    }


async def test_zero_shows_only_what_came(http):
    logprobs = strict(await http.complete(logprobs=0, max_tokens=2))["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"a ": -7.0}, {"b ": -0.125}]


async def test_numbers_that_json_has_not(http, engine, monkeypatch):
    """Executors promise finite ones; clients can read the reply even if one breaks its promise."""
    original = engine.vocabulary.logprobs

    def broken(*args):
        entry = original(*args)
        return type(entry)(
            token_id=entry.token_id, logprob=math.nan, rank=1, top_ids=entry.top_ids, top_logprobs=(-math.inf,)
        )

    monkeypatch.setattr(engine.vocabulary, "logprobs", broken)
    strict(await http.chat(logprobs=True, top_logprobs=1))
    strict(await http.complete(logprobs=1, echo=True, prompt_logprobs=1))
    http.checked.problems.clear()  # they are null, though the description says that they are numbers


async def test_each_token_is_asked_for_once(http, engine):
    for _ in range(2):
        await http.chat(logprobs=True, top_logprobs=3)
        await http.complete(logprobs=3, stream=True)
    assert len(engine.asked_tokens) == len(set(engine.asked_tokens)) == 5


async def test_prompt_logprobs_of_completions(http, engine):
    prompts = ["a b c", "d e"]
    choices = strict(await http.complete(prompt=prompts, n=2, prompt_logprobs=2))["choices"]
    assert engine.calls[0]["params"].prompt_logprobs == 2
    b, c = (str(engine.vocabulary.id_of(raw)) for raw in (b"b ", b"c"))
    first = [
        None,
        {
            b: {"logprob": -7.0, "rank": 30, "decoded_token": "b "},
            "0": {"logprob": -0.125, "rank": 1, "decoded_token": "<0>"},
            "1": {"logprob": -0.25, "rank": 2, "decoded_token": "<1>"},
        },
        {
            c: {"logprob": -0.125, "rank": 1, "decoded_token": "c"},
            "0": {"logprob": -0.25, "rank": 2, "decoded_token": "<0>"},
        },
    ]
    assert [choice["prompt_logprobs"] for choice in choices[:2]] == [first, first]
    assert [len(choice["prompt_logprobs"]) for choice in choices] == [3, 3, 2, 2]
    assert all(choice["logprobs"] is None for choice in choices)


async def test_prompt_logprobs_are_the_same_the_second_time(http):
    for asked in ({"prompt_logprobs": 2}, {"echo": True, "logprobs": 2, "max_tokens": 0}):
        first, second = [strict(await http.complete(prompt="a b c", **asked))["choices"] for _ in range(2)]
        assert first == second


async def test_prompt_logprobs_of_chat(http):
    body = strict(await http.chat(n=2, prompt_logprobs=0))
    first, second = body["prompt_logprobs"]
    assert first is None
    assert list(second.values()) == [{"logprob": -7.0, "rank": 30, "decoded_token": "b"}]
    assert "prompt_logprobs" not in body["choices"][0]
    assert "prompt_logprobs" not in strict(await http.chat())


async def test_prompt_logprobs_are_not_streamed(http, engine):
    for ask in (http.complete, http.chat):
        assert_error(await ask(stream=True, prompt_logprobs=1), 400, param="prompt_logprobs")
    assert not engine.calls
