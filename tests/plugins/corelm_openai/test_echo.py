"""Completions that begin with their prompt."""

import pytest
from openai_fakes import answer
from openai_http import assert_error, events_of

FIELDS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def joined(events, size):
    """Texts and log-probabilities of the choices of a stream."""
    choices = [{"text": "", "logprobs": {name: [] for name in FIELDS}} for _ in range(size)]
    for event in events:
        for piece in event["choices"]:
            choice = choices[piece["index"]]
            choice["text"] += piece["text"]
            for name, values in choice["logprobs"].items():
                values += (piece["logprobs"] or {}).get(name, [])
    return choices


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("prompts", [["a", "b b b", "c c"], [[1], [2, 2, 2], [3, 3]], ["a"], [[7, 8]], "a b", [7, 8]])
async def test_every_choice_begins_with_its_prompt_once(http, prompts, n, stream):
    response = await http.complete(prompt=prompts, n=n, seed=5, echo=True, stream=stream)
    each = prompts if isinstance(prompts[0], list) or (isinstance(prompts, list) and prompts[0] == "a") else [prompts]
    shown = [prompt if isinstance(prompt, str) else "".join(f"<{token}>" for token in prompt) for prompt in each]
    expected = [
        start + "".join(answer(prompt, 5 + index))
        for prompt, start in zip(each, shown, strict=True)
        for index in range(n)
    ]
    if stream:
        *events, done = events_of(response.text)
        assert done == "[DONE]"
        first = {}
        for event in events:
            for choice in event["choices"]:
                first.setdefault(choice["index"], choice["text"])
        assert [first[index].startswith(shown[index // n]) for index in range(len(expected))] == [True] * len(expected)
        choices = joined(events, len(expected))
    else:
        choices = response.json()["choices"]
        assert [choice["index"] for choice in choices] == list(range(len(expected)))
    assert [choice["text"] for choice in choices] == expected


@pytest.mark.parametrize("prompt", ["one two", [7, 8, 9]])
@pytest.mark.parametrize("n", [1, 2])
async def test_logprobs_cover_the_prompt(http, engine, prompt, n):
    asked = {"prompt": prompt, "n": n, "echo": True, "logprobs": 2, "max_tokens": 3}
    whole = (await http.complete(**asked)).json()
    assert {call["params"].prompt_logprobs for call in engine.calls} == {2}
    *events, _ = events_of((await http.complete(stream=True, **asked)).text)
    for choice, streamed in zip(whole["choices"], joined(events, n), strict=True):
        logprobs = choice["logprobs"]
        assert "".join(logprobs["tokens"]) == choice["text"] == streamed["text"]
        assert logprobs == streamed["logprobs"]
        assert (logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]) == (None, None)
        assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
        assert {len(top) for top in logprobs["top_logprobs"][1:]} <= {2, 3}
        for token, start in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
            assert choice["text"].startswith(token, start)
        assert "prompt_logprobs" not in choice


@pytest.mark.parametrize("prompt", ["one two three", [7, 8, 9]])
@pytest.mark.parametrize("logprobs", [1, 10])
@pytest.mark.parametrize("stream", [False, True])
async def test_scoring_as_evaluation_harnesses_ask_for_it(http, prompt, logprobs, stream):
    asked = {"prompt": prompt, "echo": True, "max_tokens": 0, "logprobs": logprobs, "temperature": 0, "stream": stream}
    response = await http.complete(**asked, **({"stream_options": {"include_usage": True}} if stream else {}))
    assert response.status_code == 200
    if stream:
        *events, last, _ = events_of(response.text)
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        usage, (choice,) = last["usage"], joined(events, 1)
    else:
        usage, (choice,) = response.json()["usage"], response.json()["choices"]
        assert choice["finish_reason"] == "length"
    assert choice["text"] == (prompt if isinstance(prompt, str) else "<7><8><9>")
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 0)
    values = choice["logprobs"]["token_logprobs"]
    assert len(values) == len(choice["logprobs"]["tokens"]) == 3
    assert values[0] is None
    assert all(value <= 0 for value in values[1:])


async def test_no_tokens_without_echo(http):
    body = (await http.complete(max_tokens=0, logprobs=1)).json()
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"], body["usage"]["completion_tokens"]) == ("", "length", 0)
    assert choice["logprobs"] == {name: [] for name in FIELDS}


async def test_a_token_that_the_tokenizer_puts_first_has_no_text(http, engine):
    engine.bos = b"<s>"
    (choice,) = (await http.complete(echo=True, logprobs=0, max_tokens=0)).json()["choices"]
    assert choice["text"] == "a b"
    assert choice["logprobs"]["tokens"] == ["", "a ", "b"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 2]


async def test_prompt_logprobs_may_be_asked_for_as_well(http, engine):
    (choice,) = (await http.complete(echo=True, logprobs=1, prompt_logprobs=3, max_tokens=1)).json()["choices"]
    assert engine.calls[0]["params"].prompt_logprobs == 3
    assert [len(top) for top in choice["logprobs"]["top_logprobs"][1:]] == [2, 2]
    assert [len(top) for top in choice["prompt_logprobs"][1:]] == [4]


async def test_token_ids_that_are_no_whole_characters(http, engine):
    engine.vocabulary.bytes_of = lambda token: [b"caf", b"\xc3", b"\xa9", b"\xff"][token]
    body = (await http.complete(prompt=[0, 1, 2, 3], echo=True, max_tokens=0)).json()
    assert body["choices"][0]["text"] == "café\ufffd"


async def test_a_prompt_that_is_cut_is_not_echoed(http, engine):
    assert_error(await http.complete(echo=True, truncate_prompt_tokens=1), 400, param="truncate_prompt_tokens")
    assert not engine.calls
    assert (await http.complete(prompt=[1] * 5000, truncate_prompt_tokens=1)).status_code == 200


async def test_wrong_values(http):
    for value in ("yes", 1, []):
        assert_error(await http.complete(echo=value), 400, param="echo")
