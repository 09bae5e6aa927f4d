import re

import pytest
from openai_fakes import answer
from openai_http import assert_error, events_of

from corelm.api import InvalidRequestError, RequestFailedError


def text_by_index(events):
    texts, reasons = {}, {}
    for event in events:
        for choice in event["choices"]:
            index = choice["index"]
            assert index not in reasons, "nothing follows a finish reason"
            texts[index] = texts.get(index, "") + choice["text"]
            if choice["finish_reason"]:
                reasons[index] = choice["finish_reason"]
    return texts, reasons


async def test_shape(http):
    response = await http.complete()
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert re.fullmatch(r"cmpl-[0-9a-f]{32}", body.pop("id"))
    assert isinstance(body.pop("created"), int)
    assert body == {
        "object": "text_completion",
        "model": "fake",
        "choices": [{"index": 0, "text": "a b a b a b ", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 6,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


async def test_stream_shape(http):
    response = await http.complete(stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    *events, done = events_of(response.text)
    assert done == "[DONE]"
    assert len({event["id"] for event in events}) == 1
    for event in events:
        assert event.keys() == {"id", "object", "created", "model", "choices"}
        assert event["object"] == "text_completion"
        assert [choice.keys() for choice in event["choices"]] == [{"index", "text", "logprobs", "finish_reason"}]
    assert text_by_index(events) == ({0: "a b a b a b "}, {0: "stop"})


@pytest.mark.parametrize("include", [True, False, None])
async def test_usage_chunk_only_when_asked(http, include):
    response = await http.complete(stream=True, stream_options={"include_usage": include})
    *events, done = events_of(response.text)
    assert done == "[DONE]"
    if include:
        *events, last = events
        assert last["choices"] == []
        assert last["usage"] == {
            "prompt_tokens": 2,
            "completion_tokens": 6,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        assert all(event["usage"] is None for event in events)
    assert all(event["choices"] and not event.get("usage") for event in events)


async def test_max_tokens_defaults_to_16(http, engine):
    engine.say = lambda prompt, seed: ["x"] * 50
    body = (await http.complete()).json()
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompts", [["a", "b b b", "c c"], [[1], [2, 2, 2], [3, 3]], ["a"], [[7, 8]]])
async def test_choices_of_several_prompts_come_in_order(http, prompts, stream):
    response = await http.complete(
        prompt=prompts, n=2, seed=5, stream=stream, stream_options={"include_usage": True} if stream else None
    )
    expected = ["".join(answer(prompt, seed)) for prompt in prompts for seed in (5, 6)]
    if stream:
        *events, last, _ = events_of(response.text)
        texts, reasons = text_by_index(events)
        usage = last["usage"]
        assert [texts[index] for index in range(len(expected))] == expected
        assert reasons == dict.fromkeys(range(len(expected)), "stop")
    else:
        body = response.json()
        usage = body["usage"]
        assert [choice["index"] for choice in body["choices"]] == list(range(len(expected)))
        assert [choice["text"] for choice in body["choices"]] == expected
    counts = [len(prompt.split() if isinstance(prompt, str) else prompt) for prompt in prompts]
    assert usage["prompt_tokens"] == sum(counts)
    assert usage["completion_tokens"] == 3 * 2 * sum(counts)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_a_list_of_token_ids_is_one_prompt(http, engine):
    await http.complete(prompt=[1, 2, 3])
    assert [call["prompt"] for call in engine.calls] == [[1, 2, 3]]


@pytest.mark.parametrize("prompt", [[], ["a", 1], [1, [2]], [1.5], [True], [None], {}, 5, ["a"] * 257, None])
async def test_prompts_of_a_wrong_form(http, engine, prompt):
    message = assert_error(await http.complete(prompt=prompt), 400)
    assert "prompt" in message
    assert not engine.calls


@pytest.mark.parametrize("prompt", [[10**6], [-1], [[1], [2**63]], [2**70]])
async def test_token_ids_outside_the_vocabulary(http, engine, prompt):
    message = assert_error(await http.complete(prompt=prompt), 400, param="prompt")
    assert str(prompt[-1][-1] if isinstance(prompt[-1], list) else prompt[-1]) in message
    assert not engine.live


@pytest.mark.parametrize("prompt", [[1] * 4097, [[1], [1] * 4097]])
async def test_too_many_token_ids(http, engine, prompt):
    assert_error(await http.complete(prompt=prompt), 400, param="prompt", code="context_length_exceeded")
    assert not engine.calls


@pytest.mark.parametrize(
    ("text", "seen"), [('[ "a" , "b" ]', ["a", "b"]), ("[ [ 1 ], [2]]", [[1], [2]]), ("[ 1 ]", [[1]]), ('"[["', ["[["])]
)
async def test_forms_of_a_prompt_with_spaces(http, engine, text, seen):
    response = await http.post("/v1/completions", content=f'{{"model": "fake", "prompt": {text} }}')
    assert response.status_code == 200
    assert [call["prompt"] for call in engine.calls] == seen


@pytest.mark.parametrize("stream", [False, True])
async def test_refusing_one_prompt_leaves_none_running(http, engine, stream):
    engine.refuse[2] = InvalidRequestError("too long", param="prompt", code="context_length_exceeded")
    response = await http.complete(prompt=["a", "b", "c", "d"], stream=stream)
    assert_error(response, 400, param="prompt", code="context_length_exceeded")
    assert len(engine.calls) == 3
    assert not engine.live


async def test_one_failing_choice_ends_the_others(http, engine):
    engine.fail_with, engine.fail_after = RequestFailedError("the row failed"), 2
    response = await http.complete(prompt=["a b", "c d"])
    assert assert_error(response, 500, kind="server_error") == "the row failed"
    assert not engine.live


async def test_an_answer_of_no_tokens(http, engine):
    engine.say = lambda prompt, seed: []
    *events, done = events_of((await http.complete(stream=True)).text)
    assert done == "[DONE]"
    assert text_by_index(events) == ({0: ""}, {0: "stop"})


async def test_an_aborted_request_is_an_error_not_a_success(http, engine):
    original = engine.generate

    async def generate(*args, **kwargs):
        stream = await original(*args, **kwargs)
        stream.abort()
        return stream

    engine.generate = generate
    assert_error(await http.complete(), 500, kind="server_error")
    assert_error(await http.complete(stream=True), 500, kind="server_error")
