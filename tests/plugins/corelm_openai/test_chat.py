import re

import pytest
from openai_fakes import answer
from openai_http import assert_error, events_of

from corelm.api import Chat, InvalidRequestError


def user(text):
    return {"role": "user", "content": text}


async def test_shape(http):
    body = (await http.chat()).json()
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", body.pop("id"))
    assert isinstance(body.pop("created"), int)
    message = {"role": "assistant", "content": "a b a b a b ", "refusal": None}
    assert body == {
        "object": "chat.completion",
        "model": "fake",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 6,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def check_stream(events, n):
    """Deltas of each choice: a role first, then text, then one finish reason with an empty delta. Returns the texts."""
    texts, finished = {}, {}
    for event in events:
        assert event["object"] == "chat.completion.chunk"
        indices = [choice["index"] for choice in event["choices"]]
        assert len(set(indices)) == len(indices)
        for choice in event["choices"]:
            index, delta = choice["index"], choice["delta"]
            assert choice.keys() == {"index", "delta", "logprobs", "finish_reason"}
            assert index not in finished
            if index not in texts:
                assert delta == {"role": "assistant", "content": ""}
                texts[index] = ""
            elif choice["finish_reason"]:
                assert delta == {}
                finished[index] = choice["finish_reason"]
            else:
                assert delta.keys() == {"content"}
                texts[index] += delta["content"]
    assert finished.keys() == texts.keys() == set(range(n))
    return [texts[index] for index in range(n)]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("usage", [False, True])
async def test_stream_equals_the_whole_reply(http, n, usage):
    whole = (await http.chat(n=n, seed=3)).json()
    options = {"stream_options": {"include_usage": True}} if usage else {}
    *events, done = events_of((await http.chat(n=n, seed=3, stream=True, **options)).text)
    assert done == "[DONE]"
    assert len({event["id"] for event in events}) == 1
    if usage:
        *events, last = events
        assert last["choices"] == []
        assert last["usage"] == whole["usage"]
        assert all(event["usage"] is None for event in events)
    else:
        assert all("usage" not in event for event in events)
    texts = check_stream(events, n)
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert texts == ["".join(answer("a b", 3 + index)) for index in range(n)]


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_of_different_lengths(http, engine, stream):
    engine.say = lambda prompt, seed: ["x", "y", "z", "x", "y"][: 5 - 2 * seed]
    response = await http.chat(n=3, seed=0, stream=stream)
    if stream:
        *events, done = events_of(response.text)
        assert done == "[DONE]"
        texts = check_stream(events, 3)
    else:
        texts = [choice["message"]["content"] for choice in response.json()["choices"]]
    assert texts == ["xyzxy", "xyz", "x"]
    assert len(engine.calls) == 1


async def test_an_answer_of_no_tokens_still_has_role_and_finish(http, engine):
    engine.say = lambda prompt, seed: []
    *events, done = events_of((await http.chat(stream=True)).text)
    assert done == "[DONE]"
    assert check_stream(events, 1) == [""]


async def test_the_conversation_reaches_the_engine(http, engine):
    messages = [
        {"role": "developer", "content": "rules"},
        {"role": "system", "content": [{"type": "text", "text": "more"}, {"type": "text", "text": "rules"}]},
        {"role": "user", "content": "", "name": "joe"},
        {"role": "assistant", "content": [{"type": "text", "text": "hm"}], "tool_calls": [], "refusal": None},
        {"role": "tool", "content": "42", "tool_call_id": "x"},
    ]
    await http.chat(messages=messages, chat_template_kwargs={"enable_thinking": False})
    assert engine.calls[0]["prompt"] == Chat(
        messages=[
            {"role": "developer", "content": "rules"},
            {"role": "system", "content": "more\nrules"},
            {"role": "user", "content": "", "name": "joe"},
            {"role": "assistant", "content": "hm"},
            {"role": "tool", "content": "42", "tool_call_id": "x"},
        ],
        add_generation_prompt=True,
        template_kwargs={"enable_thinking": False},
    )


async def test_generation_prompt_can_be_left_out(http, engine):
    await http.chat(add_generation_prompt=False)
    assert engine.calls[0]["prompt"].add_generation_prompt is False


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("hello", "messages"),
        ([user("a"), {"role": "banana", "content": "b"}], "messages[1].role"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": 5, "content": "a"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([user(None)], "messages[0].content"),
        ([user([])], "messages[0].content"),
        ([user(5)], "messages[0].content"),
        ([user([{"type": "text"}])], "messages[0].content[0].text"),
        ([user([{"text": "a"}])], "messages[0].content[0].type"),
        (
            [user([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}])],
            "messages[0].content[1].type",
        ),
        ([{"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}], "messages[0].tool_calls[0].function"),
    ],
)
async def test_wrong_messages(http, engine, messages, param):
    assert_error(await http.chat(messages=messages), 400, param=param)
    assert not engine.calls


async def test_a_part_that_is_not_text_is_named(http):
    part = {"type": "input_audio", "input_audio": {}}
    assert "input_audio" in assert_error(await http.chat(messages=[user([part])]), 400)


async def test_templates_cannot_be_given(http, engine):
    assert_error(await http.chat(chat_template="{{ x }}"), 400, param="chat_template")
    kwargs = {"chat_template": "{{ x }}"}
    assert_error(await http.chat(chat_template_kwargs=kwargs), 400, param="chat_template_kwargs.chat_template")
    assert not engine.calls


async def test_length_limits(http, engine):
    await http.chat()
    await http.chat(max_tokens=5)
    await http.chat(max_tokens=5, max_completion_tokens=3)
    await http.chat(max_completion_tokens=0)
    assert [call["params"].max_tokens for call in engine.calls] == [None, 5, 3, 0]
    message = assert_error(await http.chat(max_completion_tokens=1, min_tokens=2), 400, param="min_tokens")
    assert "max_tokens, which is 1" in message
    for value in (-1, 2**31, 2**70, "5", True):
        assert_error(await http.chat(max_completion_tokens=value), 400, param="max_completion_tokens")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_limit_that_does_not_fit_is_called_as_the_client_calls_it(http, engine, stream):
    for number, name in enumerate(("max_completion_tokens", "max_tokens")):
        engine.refuse[number] = InvalidRequestError("too much", param="max_tokens", code="context_length_exceeded")
        assert_error(await http.chat(stream=stream, **{name: 5}), 400, param=name)


async def test_template_variables_have_limits(http, engine):
    name = "chat_template_kwargs"
    assert_error(await http.chat(chat_template_kwargs={"x": "y" * 20_000}), 400, param=name)
    assert_error(await http.chat(chat_template_kwargs=[]), 400, param=name)
    assert (await http.chat(chat_template_kwargs=None)).status_code == 200
