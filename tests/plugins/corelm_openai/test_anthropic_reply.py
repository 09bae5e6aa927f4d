"""Replies of Anthropic's API from what the engine gives back."""

import json

import msgspec
import pytest
from anthropic_fakes import message, named_events
from corelm_openai.anthropic.body import MessagesBody
from corelm_openai.anthropic.reply import MessageReply
from corelm_openai.chat.body import ChatJob
from corelm_openai.chat.turns import CallDelta, TurnDelta
from corelm_openai.generation.choices import ChoiceOutput

from corelm.api import RequestOptions, RequestOutput, SamplingParams

CALL = CallDelta(index=0, id="call_1", name="add", arguments='{"a": 1}')
BODY = msgspec.convert(message(max_tokens=9, stop_sequences=["###"]), MessagesBody)


class Turn:
    """Reads ``call`` as a call, what is in parentheses as thinking, and the rest as text."""

    called = False

    def push(self, text, *, last=False):
        if text == "call":
            self.called = True
            return TurnDelta(calls=(CALL,))
        if text.startswith("("):
            return TurnDelta(reasoning=text.strip("()"))
        return TurnDelta(content=text)


def make_reply():
    job = ChatJob(prompts=[[1]], params=SamplingParams(stop=("###",)), options=RequestOptions(), new_turn=Turn)
    return MessageReply(BODY, job, None, "req_1")


def output(text, **values):
    counts = {"prompt_tokens": 5, "cached_tokens": 3, "completion_tokens": 9}
    return RequestOutput(request_id="x", text=text, token_ids=(), **counts | values)


def events_of(reply, *outputs):
    data = b"".join(reply.events([ChoiceOutput(0, piece)]) for piece in outputs) + reply.ending()
    return named_events(data.decode())


@pytest.mark.parametrize(
    ("text", "values", "reason", "sequence"),
    [
        ("a", {"finish_reason": "stop"}, "end_turn", None),
        ("a", {"finish_reason": "stop", "stop_reason": 7}, "end_turn", None),
        ("a", {"finish_reason": "stop", "stop_reason": "</s>"}, "end_turn", None),
        ("a", {"finish_reason": "stop", "stop_reason": "###"}, "stop_sequence", "###"),
        ("a", {"finish_reason": "length"}, "max_tokens", None),
        ("a", {"finish_reason": "length", "completion_tokens": 8}, "model_context_window_exceeded", None),
        ("call", {"finish_reason": "stop"}, "tool_use", None),
        ("call", {"finish_reason": "length"}, "max_tokens", None),
    ],
)
def test_why_it_ends(text, values, reason, sequence):
    last = output(text, **values)
    whole = json.loads(msgspec.json.encode(make_reply().body([last])))
    assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, sequence)
    assert events_of(make_reply(), last)[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_what_was_cached_is_not_input():
    reply = make_reply()
    usage = msgspec.to_builtins(reply.body([output("a", finish_reason="stop")]).usage)
    assert usage == {
        "input_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 3,
        "output_tokens": 9,
    }
    assert reply.tokens == (5, 9)
    reply = make_reply()
    start, *_, end, _ = events_of(reply, output("a", completion_tokens=1), output("b", finish_reason="stop"))
    assert start["message"]["usage"] == {**usage, "output_tokens": 1}
    assert end["usage"] == usage
    assert reply.tokens == (5, 9)


def test_all_kinds_of_blocks():
    outputs = [output("(h)"), output("(m)"), output("so"), output("call"), output("", finish_reason="stop")]
    events = events_of(make_reply(), *outputs)
    assert [event["type"].removeprefix("content_block_") for event in events] == [
        *("message_start", "start", "delta", "delta", "delta", "stop"),
        *("start", "delta", "stop", "start", "delta", "stop", "message_delta", "message_stop"),
    ]
    kinds = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert kinds == ["thinking", "text", "tool_use"]
