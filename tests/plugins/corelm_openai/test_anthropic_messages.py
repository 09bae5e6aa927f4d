"""Conversations of Anthropic's API as chat has them."""

import msgspec
import pytest
from corelm_openai.anthropic.messages import Turn, conversation

USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}


def call(arguments):
    return {"type": "function", "function": {"name": "add", "arguments": arguments}, "id": "1"}


CALLS = [call({"a": 1})]


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def text(text, **more):
    return {"type": "text", "text": text, **more}


def result(content, **more):
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


@pytest.mark.parametrize(
    ("turns", "messages"),
    [
        ([user("a")], [user("a")]),
        ([user([text("a"), text("b", cache_control={"type": "ephemeral"})])], [user("a\nb")]),
        ([user("a"), user([text("b")]), assistant("c")], [user("a\nb"), assistant("c")]),
        ([assistant([text("a")]), assistant("b")], [assistant("a\nb")]),
        ([user("a"), {"role": "system", "content": "b"}], [user("a"), {"role": "system", "content": "b"}]),
        ([assistant([USE])], [{**assistant(None), "tool_calls": CALLS}]),
        ([assistant([{**USE, "input": None}])], [{**assistant(None), "tool_calls": [call({})]}]),
        ([assistant([text("a"), USE])], [{**assistant("a"), "tool_calls": CALLS}]),
        (
            [assistant([{"type": "thinking", "thinking": "hm", "signature": "x"}, text("a")])],
            [{**assistant("a"), "reasoning_content": "hm"}],
        ),
        ([assistant([{"type": "redacted_thinking", "data": "x"}])], [assistant("")]),
        (
            [user([result("3"), result([text("4"), text("5")]), text("so?")])],
            [
                {"role": "tool", "tool_call_id": "1", "content": "3"},
                {"role": "tool", "tool_call_id": "1", "content": "4\n5"},
                user("so?"),
            ],
        ),
        (
            [user([result("no", is_error=True), result([]), {"type": "tool_result", "tool_use_id": "toolu_1"}])],
            [
                {"role": "tool", "tool_call_id": "1", "content": "Error: no"},
                {"role": "tool", "tool_call_id": "1", "content": ""},
                {"role": "tool", "tool_call_id": "1", "content": ""},
            ],
        ),
    ],
)
def test_turns(turns, messages):
    decoded = msgspec.json.decode(msgspec.json.encode(turns), type=list[Turn])
    assert [message.plain("") for message in conversation(decoded)] == messages
