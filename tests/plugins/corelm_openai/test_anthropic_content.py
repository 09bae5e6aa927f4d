"""Blocks from turns, whole and in pieces."""

import json

import pytest
from corelm_openai.anthropic.content import BlockWriter, whole_blocks
from corelm_openai.chat.turns import CallDelta, TurnDelta
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json as msgjson

CALL = CallDelta(index=0, id="call_1", name="add", arguments='{"a":')
REST = CallDelta(index=0, arguments="1}")
OTHER = CallDelta(index=1, id="call_2", name="noop", arguments="{}")


def plain(value):
    return json.loads(msgjson.encode(value))


def written(turns):
    writer = BlockWriter()
    events = [event for turn in turns for event in writer.write(turn)]
    return plain([*events, *writer.finish()])


def built(events):
    """The blocks that a client makes of the events, which must be in order."""
    blocks, opened = [], None
    for event in events:
        if event["type"] == "content_block_start":
            assert opened is None
            opened = event["index"]
            assert opened == len(blocks)
            blocks.append({**event["content_block"], "json": ""})
            continue
        assert event["index"] == opened
        if event["type"] == "content_block_stop":
            opened = None
            continue
        kind, piece = (event["delta"][key] for key in event["delta"])
        field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(kind, "json")
        blocks[-1][field] += piece
    assert opened is None
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return blocks


def test_blocks_of_a_whole_turn():
    turn = TurnDelta(reasoning="hm", content="so:", calls=(CALL, REST, OTHER))
    assert plain(whole_blocks(turn)) == [
        {"type": "thinking", "thinking": "hm", "signature": "unsigned"},
        {"type": "text", "text": "so:"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "noop", "input": {}},
    ]


def test_events_in_order():
    events = written(
        [TurnDelta(reasoning="h"), TurnDelta(reasoning="m"), TurnDelta(content="so"), TurnDelta(calls=(CALL,))]
    )
    assert [(event["type"], event["index"]) for event in events] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
    ]
    assert events[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert events[3]["delta"] == {"type": "signature_delta", "signature": "unsigned"}
    assert events[5]["content_block"] == {"type": "text", "text": ""}
    assert events[8]["content_block"] == {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
    assert events[9]["delta"] == {"type": "input_json_delta", "partial_json": '{"a":'}


@pytest.mark.parametrize("arguments", ['{"a": 1', "", "[1]", "nonsense"])
def test_a_call_that_was_cut_off_has_no_input(arguments):
    call = CallDelta(index=0, id="call_1", name="add", arguments=arguments)
    assert plain(whole_blocks(TurnDelta(calls=(call,))))[0]["input"] == {}


@pytest.mark.parametrize("space", [" ", "\n\n"])
def test_white_space_is_a_block_only_if_there_is_no_other(space):
    for turns in ([TurnDelta(content=space, calls=(CALL, REST))], [TurnDelta(reasoning="hm", content=space)]):
        assert [block["type"] for block in built(written(turns))] == [plain(whole_blocks(turns[0]))[0]["type"]]
    assert built(written([TurnDelta(content=space)])) == [{"type": "text", "text": space}]
    assert plain(whole_blocks(TurnDelta(content=space))) == [{"type": "text", "text": space}]
    assert built(written([TurnDelta(content=space), TurnDelta(content="a"), TurnDelta(content=space)])) == [
        {"type": "text", "text": f"{space}a{space}"}
    ]


@given(
    reasoning=st.lists(st.text(max_size=3), max_size=3),
    content=st.lists(st.text(" \na", max_size=3), max_size=4),
    calls=st.sampled_from([[], [CALL, REST], [CALL, REST, OTHER]]),
)
def test_pieces_add_up_to_the_whole(reasoning, content, calls):
    turns = [
        *(TurnDelta(reasoning=piece) for piece in reasoning),
        *(TurnDelta(content=piece) for piece in content),
        *(TurnDelta(calls=(call,)) for call in calls),
    ]
    whole = TurnDelta(reasoning="".join(reasoning), content="".join(content), calls=tuple(calls))
    assert built(written(turns)) == plain(whole_blocks(whole))
