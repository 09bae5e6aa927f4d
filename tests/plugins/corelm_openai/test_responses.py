"""/v1/responses: what is asked and what is answered."""

import json
import re

import pytest
from corelm_openai.settings import OpenAISettings
from openai_http import Http, assert_error
from responses_kit import respond, responded, text_of, tool

from corelm.api import InvalidRequestError, QueueFullError, RequestOptions

SAID = "a b a b a b "
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "sky"}}\n</tool_call>'


@pytest.fixture
def settings():
    return OpenAISettings(port=0, tool_format="hermes")


def conversation(engine):
    """The messages of the last request."""
    return engine.calls[-1]["prompt"].messages


async def test_the_whole_response(http):
    response = await responded(http)
    message = response["output"][0]
    assert response["id"].startswith("resp_")
    assert message["id"].startswith("msg_")
    assert response | {"id": 0, "created_at": 0, "completed_at": 0, "output": 0} == {
        "id": 0,
        "object": "response",
        "created_at": 0,
        "completed_at": 0,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "model": "fake",
        "output": 0,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 6,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 8,
        },
        "user": None,
    }
    assert response["completed_at"] >= response["created_at"] > 1.7e9
    assert response["output"] == [
        {
            "type": "message",
            "id": message["id"],
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": SAID, "annotations": [], "logprobs": []}],
        }
    ]


async def test_what_was_asked_is_shown_and_reaches_the_engine(http, engine):
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    asked = {
        "instructions": "be brief",
        "max_output_tokens": 3,
        "max_tool_calls": 2,
        "metadata": {"k": "v"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "p",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "joe",
        "store": False,
        "temperature": 0.5,
        "text": {"format": schema, "verbosity": "medium"},
        "tool_choice": "none",
        "tools": [tool(description="d", strict=True)],
        "top_logprobs": 2,
        "top_p": 0.25,
        "truncation": "disabled",
        "user": "jim",
    }
    response = await responded(http, **asked, include=["reasoning.encrypted_content"], service_tier="flex")
    assert {name: response[name] for name in asked} == asked
    (call,) = engine.calls
    params = call["params"]
    assert (params.max_tokens, params.temperature, params.top_p, params.logprobs) == (3, 0.5, 0.25, 2)
    assert json.loads(params.structured_output.source) == {"type": "object"}
    assert call["options"] == RequestOptions(tenant="joe")
    assert [message["role"] for message in call["prompt"].messages] == ["system", "user"]
    assert call["request_id"] == response["id"] + "-0"


async def test_an_output_that_is_cut_off_is_incomplete(http):
    response = await responded(http, max_output_tokens=2)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None
    assert response["output"][0]["status"] == "incomplete"
    assert text_of(response) == "a b "


async def test_an_empty_output_is_an_empty_message(http, engine):
    engine.say = lambda prompt, seed: [""]
    response = await responded(http)
    assert [item["type"] for item in response["output"]] == ["message"]
    assert text_of(response) == ""


@pytest.mark.parametrize("asked", [{"include": ["message.output_text.logprobs"]}, {"top_logprobs": 2}])
async def test_log_probabilities(http, asked):
    response = await responded(http, **asked)
    entries = response["output"][0]["content"][0]["logprobs"]
    assert "".join(entry["token"] for entry in entries) == SAID
    assert [len(entry["top_logprobs"]) for entry in entries] == [asked.get("top_logprobs", 0)] * 6
    assert bytes(entries[0]["bytes"]) == b"a "


async def test_thoughts_are_an_item_of_their_own(engine):
    engine.say = lambda prompt, seed: ["<think>", "hmm ", "so", "</think>", "yes"]
    async with Http(engine, OpenAISettings(reasoning_format="think")) as http:
        response = await responded(http)
    thoughts, message = response["output"]
    assert thoughts["id"].startswith("rs_")
    assert thoughts | {"id": 0} == {
        "type": "reasoning",
        "id": 0,
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hmm so"}],
    }
    assert message["content"][0]["text"] == "yes"
    assert 0 < response["usage"]["output_tokens_details"]["reasoning_tokens"] < response["usage"]["output_tokens"]


async def test_calls(http, engine):
    engine.say = lambda prompt, seed: ["I ask. ", CALL, CALL]
    response = await responded(http, tools=[tool()])
    message, first, second = response["output"]
    assert message["content"][0]["text"].strip() == "I ask."
    assert json.loads(first["arguments"]) == {"word": "sky"}
    assert first["id"].startswith("fc_")
    assert first["call_id"].startswith("call_")
    assert first["call_id"] != second["call_id"]
    assert first["name"] == second["name"] == "look_up"
    assert first["status"] == "completed"


async def test_only_allowed_tools_are_offered(http, engine):
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]}
    response = await responded(http, tools=[tool("a"), tool("b")], tool_choice=choice)
    assert [offered["function"]["name"] for offered in engine.calls[0]["prompt"].tools] == ["b"]
    assert response["tool_choice"] == choice
    assert [shown["name"] for shown in response["tools"]] == ["a", "b"]


@pytest.mark.parametrize("parameters", [b'{"x": "\xff"}', b'{"x": "\\ud800"}', b'{"x": "a\x0bb"}', b"[]"])
async def test_tools_that_are_not_allowed_are_shown_and_so_must_be_right(http, parameters):
    choice = b'{"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]}'
    tools = b'[{"type": "function", "name": "a", "parameters": %b}, {"type": "function", "name": "b"}]' % parameters
    body = b'{"model": "fake", "input": "a", "tools": %b, "tool_choice": %b}' % (tools, choice)
    assert_error(await http.post("/v1/responses", content=body), 400)


def parts(*texts, kind="input_text"):
    return [{"type": kind, "text": text} for text in texts]


def function_call(call_id="c1", arguments='{"word": "sky"}'):
    return {"type": "function_call", "call_id": call_id, "name": "look_up", "arguments": arguments}


CALLED = {"type": "function", "id": "c1", "function": {"name": "look_up", "arguments": {"word": "sky"}}}
HI = {"role": "user", "content": "hi"}
INPUTS = {
    "text": ("hi", [HI]),
    "a message": ([HI], [HI]),
    "typed messages": (
        [{"type": "message", "role": "developer", "content": parts("x", "y")}, HI],
        [{"role": "developer", "content": "x\ny"}, HI],
    ),
    "a reply": (
        [HI, {"role": "assistant", "content": parts("yes", kind="output_text")}, HI],
        [HI, {"role": "assistant", "content": "yes"}, HI],
    ),
    "a refusal": (
        [HI, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, HI],
        [HI, {"role": "assistant", "content": "no"}, HI],
    ),
    "calls after a reply": (
        [
            HI,
            {"type": "reasoning", "summary": [], "content": parts("hm", kind="reasoning_text")},
            {"role": "assistant", "content": "wait"},
            function_call(),
            {"type": "function_call_output", "call_id": "c1", "output": parts("blue", "grey")},
        ],
        [
            HI,
            {"role": "assistant", "content": "wait", "reasoning_content": "hm", "tool_calls": [CALLED]},
            {"role": "tool", "content": "blue\ngrey", "tool_call_id": "c1"},
        ],
    ),
    "calls alone": (
        [HI, function_call(), function_call("c2"), {"type": "function_call_output", "call_id": "c2", "output": "x"}],
        [
            HI,
            {"role": "assistant", "content": None, "tool_calls": [CALLED, CALLED | {"id": "c2"}]},
            {"role": "tool", "content": "x", "tool_call_id": "c2"},
        ],
    ),
    "thoughts that cannot be read": (
        [HI, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}, HI],
        [HI, HI],
    ),
    "thoughts alone": (
        [HI, {"type": "reasoning", "summary": [], "content": parts("hm", kind="reasoning_text")}, HI],
        [HI, {"role": "assistant", "content": "", "reasoning_content": "hm"}, HI],
    ),
}


@pytest.mark.parametrize(("wire", "messages"), INPUTS.values(), ids=INPUTS.keys())
async def test_input(http, engine, wire, messages):
    engine.say = lambda prompt, seed: ["ok"]
    await responded(http, input=wire)
    assert conversation(engine) == messages


REFUSED = {
    "input": [3, {"role": "user"}, []],
    "input[0].role": [[{"role": "banana", "content": "x"}], [{"content": "x"}], [{"role": "tool", "content": "x"}]],
    "input[0].content": [[{"role": "user"}], [{"role": "user", "content": []}], [{"role": "user", "content": 3}]],
    "input[0].content[0].text": [[{"role": "user", "content": [{"type": "input_text"}]}]],
    "input[0].content[0].type": [
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}],
        [{"role": "user", "content": [{"type": "input_file"}]}],
        [{"role": "user", "content": [{"text": "x"}]}],
    ],
    "input[0].type": [[{"type": "web_search_call", "id": "x"}], [{"type": 3}]],
    "input[0].call_id": [[{"type": "function_call", "name": "f", "arguments": "{}"}]],
    "input[0].name": [[{"type": "function_call", "call_id": "c", "arguments": "{}"}]],
    "input[0].arguments": [[{"type": "function_call", "call_id": "c", "name": "f"}]],
    "input[0].output": [[{"type": "function_call_output", "call_id": "c"}]],
    "input[0].id": [[{"type": "item_reference"}], [{"type": "item_reference", "id": "msg_none"}]],
}
WRONG = [(param, {"input": value}) for param, values in REFUSED.items() for value in values] + [
    ("input", {"input": [{"type": "function_call_output", "call_id": "c9", "output": "x"}]}),
    ("input", {"input": [function_call(arguments="{"), HI]}),
    ("input", {"input": [HI | {"id": "msg_1"}, HI | {"id": "msg_1"}]}),
    ("instructions", {"instructions": 3}),
    ("previous_response_id", {"previous_response_id": "resp_none"}),
    ("store", {"store": "yes"}),
    ("background", {"background": True, "store": False}),
    ("stream_options", {"stream_options": {}, "stream": False}),
    ("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": True}}),
    ("tools[0].type", {"tools": [{"type": "web_search"}]}),
    ("tools[1].type", {"tools": [tool(), {"type": "mcp", "server_label": "x"}]}),
    ("tools[0].name", {"tools": [{"type": "function"}]}),
    ("tools[0].parameters", {"tools": [tool(parameters=3)]}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tool_choice": "sometimes", "tools": [tool()]}),
    ("tool_choice.type", {"tool_choice": {"type": "mcp"}, "tools": [tool()]}),
    ("tool_choice.name", {"tool_choice": {"type": "function"}, "tools": [tool()]}),
    ("tool_choice", {"tool_choice": {"type": "function", "name": "other"}, "tools": [tool()]}),
    ("tool_choice.tools", {"tool_choice": {"type": "allowed_tools", "mode": "auto"}, "tools": [tool()]}),
    (
        "tool_choice.tools[0].name",
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]}},
    ),
    ("parallel_tool_calls", {"parallel_tool_calls": 1}),
    ("text.format.type", {"text": {"format": {"type": "xml"}}}),
    ("text.format.name", {"text": {"format": {"type": "json_schema", "schema": {}}}}),
    ("text.format.name", {"text": {"format": {"type": "json_schema", "name": "a b", "schema": {}}}}),
    ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "n"}}}),
    ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "n", "schema": 3}}}),
    ("text.verbosity", {"text": {"verbosity": "high"}}),
    ("text.color", {"text": {"color": "red"}}),
    ("reasoning.effort", {"reasoning": {"effort": "heroic"}}),
    ("reasoning.summary", {"reasoning": {"summary": "yes"}}),
    ("max_output_tokens", {"max_output_tokens": 0}),
    ("max_output_tokens", {"max_output_tokens": 2**40}),
    ("temperature", {"temperature": 2.5}),
    ("top_p", {"top_p": 0}),
    ("top_logprobs", {"top_logprobs": 21}),
    ("include[1]", {"include": ["message.output_text.logprobs", "everything"]}),
    ("metadata", {"metadata": {str(number): "" for number in range(17)}}),
    ("metadata", {"metadata": {"k" * 65: ""}}),
    ("metadata", {"metadata": {"k": "v" * 513}}),
    ("metadata", {"metadata": {"k": "v" * 2**18}}),
    ("metadata", {"metadata": {"k": 3}}),
    ("user", {"user": "u" * 513}),
    ("truncation", {"truncation": "middle"}),
    ("conversation", {"conversation": "conv_1"}),
    ("prompt", {"prompt": {"id": "pmpt_1"}}),
    ("moderation", {"moderation": {"model": "m"}}),
    ("frequency", {"frequency": 1}),
]


@pytest.mark.parametrize(("param", "body"), WRONG)
async def test_what_is_wrong_is_refused_by_name(http, engine, param, body):
    for stream in (False, True):
        message = assert_error(await respond(http, **{"stream": stream, **body}), 400, param=param)
        assert re.split(r"[.\[]", param)[0] in message or "no response" in message
    assert not engine.calls


async def test_errors_of_the_engine_name_the_clients_fields(http, engine):
    engine.refuse[0] = InvalidRequestError(
        "max_tokens asks for 9 more", param="max_tokens", code="context_length_exceeded"
    )
    engine.refuse[1] = InvalidRequestError("messages are too long", param="messages")
    engine.refuse[2] = QueueFullError("64 requests wait")
    message = assert_error(await respond(http), 400, param="max_output_tokens", code="context_length_exceeded")
    assert message == "max_output_tokens asks for 9 more"
    assert_error(await respond(http), 400, param="input")
    assert_error(await respond(http), 429, code="queue_full", kind="rate_limit_error")


async def test_unknown_model(http):
    assert_error(await respond(http, model="nope"), 404, param="model", code="model_not_found")
