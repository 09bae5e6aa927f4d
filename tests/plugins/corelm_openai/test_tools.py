"""Tools in chat: what reaches the engine, and what clients get of what the model writes."""

import json

import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error, events_of

from corelm.api import InvalidRequestError

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
TIME = {"type": "function", "function": {"name": "time"}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ONE = ["<tool_call>", '\n{"name": "get', '_weather", "arguments": {"pl', 'ace": "Rome"}}\n', "</tool_call>"]
TWO = [*ONE, "\n<tool_", 'call>{"name": "time", "arguments": {}}</tool_call>']


def saying(engine, pieces):
    engine.say = lambda prompt, seed: pieces


async def ask(http, **body):
    response = await http.chat(**{"tools": [WEATHER, TIME], **body})
    assert response.status_code == 200, response.text
    return response


async def whole(http, **body):
    (choice,) = (await ask(http, **body)).json()["choices"]
    return choice


async def streamed(http, **body):
    """The deltas of a stream, and the reason why it finished."""
    *events, done = events_of((await ask(http, stream=True, **body)).text)
    assert done == "[DONE]"
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[-1] == {}
    return deltas[:-1], events[-1]["choices"][0]["finish_reason"]


def put_together(deltas):
    """The message that deltas make; checks what a client relies on."""
    message = {"content": "", "tool_calls": []}
    assert deltas[0] == {"role": "assistant", "content": ""}
    for delta in deltas[1:]:
        assert len(delta) == 1
        message["content"] += delta.get("content", "")
        for call in delta.get("tool_calls", []):
            if call["index"] == len(message["tool_calls"]):
                assert call.keys() == {"index", "id", "type", "function"}
                assert call["function"]["arguments"] == ""
                message["tool_calls"].append({**call, "function": {**call["function"]}})
            else:
                assert call.keys() == {"index", "function"}
                assert call["function"].keys() == {"arguments"}
                assert call["function"]["arguments"]
                function = message["tool_calls"][call["index"]]["function"]
                function["arguments"] += call["function"]["arguments"]
    return message


async def test_a_call(http, engine):
    saying(engine, ONE)
    choice = await whole(http)
    (call,) = choice["message"].pop("tool_calls")
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "get_weather", "arguments": '{"place": "Rome"}'}}
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}
    assert choice["finish_reason"] == "tool_calls"


async def test_calls_are_streamed_as_they_come(http, engine):
    saying(engine, ["I ", "look.\n", *TWO])
    deltas, reason = await streamed(http)
    message = put_together(deltas)
    assert reason == "tool_calls"
    assert message["content"] == "I look."
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "get_weather", "arguments": '{"place": "Rome"}'},
        {"name": "time", "arguments": "{}"},
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    pieces = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert pieces == ["", '{"pl', 'ace": "Rome"}', "", "{}"]


@pytest.mark.parametrize("pieces", [ONE, TWO, ["Hi ", "there"], ["<tool_call>", "what?"], [*ONE[:3]], ["x", *ONE]])
@pytest.mark.parametrize("logprobs", [False, True])
async def test_stream_and_whole_say_the_same(http, engine, pieces, logprobs):
    saying(engine, pieces)
    choice = await whole(http, logprobs=logprobs)
    deltas, reason = await streamed(http, logprobs=logprobs)
    message = put_together(deltas)
    calls = choice["message"].get("tool_calls", [])
    assert [call["function"] for call in message["tool_calls"]] == [call["function"] for call in calls]
    assert message["content"] == (choice["message"]["content"] or "")
    assert reason == choice["finish_reason"]
    assert (reason == "tool_calls") == bool(calls)
    assert "tool_calls" not in choice["message"] or calls


async def test_each_tokens_logprob_comes_once(http, engine):
    saying(engine, TWO)
    *events, _ = events_of((await ask(http, stream=True, logprobs=True)).text)
    entries = [event["choices"][0]["logprobs"] for event in events]
    tokens = [token["token"] for entry in entries if entry for token in entry["content"]]
    assert tokens == TWO


async def test_a_call_that_is_cut_off_ends_with_its_length(http, engine):
    saying(engine, ONE)
    choice = await whole(http, max_tokens=3)
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"pl'
    assert choice["finish_reason"] == "length"
    assert (await streamed(http, max_tokens=3))[1] == "length"


async def test_choices_call_on_their_own(http, engine):
    engine.say = lambda prompt, seed: ONE if seed else ["no ", "call"]
    choices = (await ask(http, n=2, seed=0)).json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "tool_calls"]
    assert choices[0]["message"]["content"] == "no call"


async def test_only_one_call_if_not_parallel(http, engine):
    saying(engine, [*TWO, "bye"])
    message = (await whole(http, parallel_tool_calls=False))["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["get_weather"]
    assert message["content"] == "bye"
    message = put_together((await streamed(http, parallel_tool_calls=False))[0])
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"place": "Rome"}']


async def test_what_the_model_is_told(http, engine):
    await ask(http)
    (call,) = engine.calls
    time = {"name": "time", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert call["prompt"].tools == [WEATHER, {"type": "function", "function": time}]
    assert call["params"].structured_output is None
    assert not call["params"].skip_special_tokens


@pytest.mark.parametrize("body", [{"tool_choice": "none"}, {"tools": []}, {"tools": None, "tool_choice": "auto"}])
async def test_nothing_is_called_without_tools(http, engine, body):
    saying(engine, ONE)
    for stream in (False, True):
        await ask(http, stream=stream, **body)
    choice = await whole(http, **body)
    assert choice["message"]["content"] == "".join(ONE)
    assert choice["finish_reason"] == "stop"
    assert not engine.calls[0]["prompt"].tools
    assert engine.calls[0]["params"].skip_special_tokens


@pytest.mark.parametrize(
    ("choice", "names", "reason"),
    [("required", {"get_weather", "time"}, "tool_calls"), (NAMED, {"get_weather"}, "stop")],
)
async def test_a_call_is_forced_by_a_grammar(http, engine, choice, names, reason):
    saying(engine, ONE)
    assert (await whole(http, tool_choice=choice))["finish_reason"] == reason
    assert (await streamed(http, tool_choice=choice))[1] == reason
    output = engine.calls[0]["params"].structured_output
    assert output.kind == "grammar"
    assert output.source.startswith("start: calls\n")
    assert {name for name in ("get_weather", "time") if json.dumps(f'"{name}"') in output.source} == names
    assert len(engine.calls[0]["prompt"].tools) == 2


async def test_an_engine_without_grammars_says_so(http, engine):
    engine.refuse[0] = InvalidRequestError("structured_output needs a compiler", param="structured_output")
    message = assert_error(await http.chat(tools=[TIME], tool_choice="required"), 400, param="tool_choice")
    assert message == "tool_choice needs a compiler"


async def test_an_answer_of_a_form_does_not_keep_from_calling(http, engine):
    await ask(http, response_format={"type": "json_object"})
    source = engine.calls[0]["params"].structured_output.source
    assert source.startswith("start: calls | answer\nanswer: %json")


def tool(**function):
    return {"type": "function", "function": function}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"tools": None, "tool_choice": NAMED}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": {"type": "custom", "function": {"name": "time"}}}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tools": "x"}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [TIME, {"type": "custom", "custom": {"name": "f"}}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [tool()]}, "tools[0].function.name"),
        ({"tools": [tool(name="a b")]}, "tools[0].function.name"),
        ({"tools": [tool(name="f\n")]}, "tools[0].function.name"),
        ({"tools": [tool(name="x" * 65)]}, "tools[0].function.name"),
        ({"tools": [TIME, TIME]}, "tools[1].function.name"),
        ({"tools": [tool(name="f", parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [tool(name="f", parameters={"type": "string"})]}, "tools[0].function.parameters"),
        ({"tools": [tool(name="f", parameters={"x": "y" * 2**18})]}, "tools"),
        ({"tools": [tool(name=f"f{number}", parameters={"x": "y" * 2**17}) for number in range(2)]}, "tools"),
        ({"tools": [tool(name=f"f{number}") for number in range(1001)]}, "tools"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"tool_choice": "required", "use_beam_search": True}, "tool_choice"),
    ],
)
async def test_what_is_wrong_is_refused(http, engine, stream, body, param):
    message = assert_error(await http.chat(**{"tools": [WEATHER, TIME], "stream": stream, **body}), 400, param=param)
    assert param.partition("[")[0] in message
    assert not engine.calls


CALL = {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": ' {"zone": "UTC"} '}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "noon"}]}
ASKED = {"role": "user", "content": "When?"}


async def test_a_conversation_with_calls_reaches_the_template(http, engine):
    calls = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]}
    empty = {**CALL, "function": {"name": "time", "arguments": ""}}
    said = {"role": "assistant", "content": "Wait.", "name": "Ann", "reasoning_content": "Hm.", "tool_calls": [empty]}
    await ask(http, messages=[ASKED, calls, RESULT, said, {**RESULT, "content": ""}])
    assert engine.calls[0]["prompt"].messages == [
        ASKED,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": {"zone": "UTC"}}}
            ],
        },
        {"role": "tool", "content": "noon", "tool_call_id": "call_1"},
        {
            "role": "assistant",
            "content": "Wait.",
            "name": "Ann",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "time", "arguments": {}}}],
        },
        {"role": "tool", "content": "", "tool_call_id": "call_1"},
    ]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "tool_calls": [CALL], "content": "x"}, "tool_calls"),
        ({"role": "user", "tool_call_id": "x", "content": "x"}, "tool_call_id"),
        ({"role": "tool", "tool_call_id": "x"}, "content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "content"),
        ({"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]}, "tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "tool_calls[0].function"),
        *[
            (
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": wrong}}]},
                "tool_calls[0].function.arguments",
            )
            for wrong in ("[]", "{", "null", '{"a": 1} x', {"a": 1}, "[" * 100_000)
        ],
        ({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}, "function_call"),
        ({"role": "assistant", "content": [{"type": "refusal"}]}, "content[0].refusal"),
        ({"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}, "content[0].type"),
    ],
)
async def test_wrong_messages_are_refused(http, engine, message, param):
    assert_error(await http.chat(messages=[ASKED, message]), 400, param=f"messages[1].{param}")
    assert not engine.calls


async def test_long_arguments_are_refused_unread(http, engine):
    call = {"function": {"name": "f", "arguments": json.dumps({"x": "y" * 2**19})}}
    messages = [ASKED, {"role": "assistant", "tool_calls": [call] * 3}]
    assert "arguments" in assert_error(await http.chat(messages=messages), 400, param="messages")
    assert not engine.calls


async def test_half_of_a_surrogate_pair_in_arguments(http):
    call = b'{"id": "x", "function": {"name": "f", "arguments": "{\\"a\\": \\"\\\\ud800\\"}"}}'
    body = b'{"model": "fake", "messages": [{"role": "assistant", "tool_calls": [' + call + b"]}]}"
    assert_error(await http.post("/v1/chat/completions", content=body), 400)


async def test_refusals_are_what_the_assistant_said(http, engine):
    parts = [{"type": "refusal", "refusal": "No."}, {"type": "text", "text": "Sorry."}]
    refused = {"role": "assistant", "content": None, "refusal": "Never."}
    await http.chat(messages=[ASKED, refused, ASKED, {"role": "assistant", "content": parts}, ASKED])
    contents = [message["content"] for message in engine.calls[0]["prompt"].messages]
    assert contents == ["When?", "Never.", "When?", "No.\nSorry.", "When?"]


FORMATS = {
    "hermes": ONE,
    "llama3_json": ['{"name": "get_weather", ', '"parameters": {"place": "Rome"}}'],
    "mistral": ["[TOOL_CALLS]", 'get_weather[ARGS]{"place": "Rome"}'],
    "pythonic": ["[get_weather(", "place='Rome')]"],
}


@pytest.mark.parametrize(
    ("special", "setting", "form"),
    [
        ({}, "auto", "hermes"),
        ({"[TOOL_CALLS]": 7}, "auto", "mistral"),
        ({"<|python_tag|>": 7}, "auto", "llama3_json"),
        ({"<|python_tag|>": 7, "<tool_call>": 8}, "auto", "hermes"),
        ({"[TOOL_CALLS]": 7}, "pythonic", "pythonic"),
    ],
)
async def test_the_format_is_that_of_the_setting_or_the_vocabulary(engine, special, setting, form):
    engine.special = special
    async with Http(engine, OpenAISettings(tool_format=setting)) as http:
        for name, pieces in FORMATS.items():
            saying(engine, pieces)
            assert ((await whole(http))["message"]["content"] is None) == (name == form)


async def test_forced_calls_begin_with_the_models_own_tokens(http, engine):
    engine.special = {"[TOOL_CALLS]": 7, "[ARGS]": 9}
    await ask(http, tool_choice="required")
    assert "call_block: <[7]> call\n" in engine.calls[0]["params"].structured_output.source
    assert "<[9]>" in engine.calls[0]["params"].structured_output.source


async def test_a_template_without_tools_gets_them_as_text(http, engine):
    engine.knows_tools = False
    calls = {"role": "assistant", "content": "Hm.", "tool_calls": [CALL, CALL]}
    saying(engine, ONE)
    assert (await whole(http, messages=[ASKED, calls, RESULT]))["finish_reason"] == "tool_calls"
    chat = engine.calls[0]["prompt"]
    assert not chat.tools
    system, asked, called, result = chat.messages
    assert system["role"] == "system"
    assert "get_weather" in system["content"]
    assert "<tool_call>" in system["content"]
    assert asked == ASKED
    text = '<tool_call>\n{"name": "time", "arguments": {"zone": "UTC"}}\n</tool_call>'
    assert called == {"role": "assistant", "content": f"Hm.\n{text}\n{text}"}
    assert result == {"role": "user", "content": "<tool_response>\nnoon\n</tool_response>"}
    await ask(http, messages=[{"role": "developer", "content": "Be brief."}, ASKED])
    first, _ = engine.calls[1]["prompt"].messages
    assert first["role"] == "developer"
    assert first["content"].startswith("Be brief.\n\nYou can call")


async def test_a_template_without_tools_and_a_format_without_instructions(engine):
    engine.knows_tools = False
    async with Http(engine, OpenAISettings(tool_format="mistral")) as http:
        assert_error(await http.chat(tools=[TIME]), 400, param="tools")
        messages = [ASKED, {"role": "assistant", "tool_calls": [CALL]}, RESULT]
        assert (await http.chat(tools=[TIME], tool_choice="none", messages=messages)).status_code == 200
    assert "time" in engine.calls[0]["prompt"].messages[1]["content"]


async def test_completions_call_nothing(http):
    assert_error(await http.complete(tools=[TIME]), 400, param="tools")
