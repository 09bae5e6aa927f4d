"""The content blocks of a reply, and the events that build them up."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Raw

from corelm_openai.anthropic.messages import OBJECT, tool_use_id
from corelm_openai.chat.turns import CallDelta, TurnDelta

SIGNATURE = "unsigned"
"""Clients keep thinking only if it has a signature, and send both back; nobody checks this one."""


class Tagged(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """A block, a piece of one, or an event: its `type` is its tag."""

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)


class TextBlock(Tagged, tag="text", frozen=True, kw_only=True):
    """What the model says."""

    text: str


class ThinkingBlock(Tagged, tag="thinking", frozen=True, kw_only=True):
    """What it thinks before it does."""

    thinking: str
    signature: str


class ToolUseBlock(Tagged, tag="tool_use", frozen=True, kw_only=True):
    """A tool it calls."""

    id: str
    name: str
    input: Annotated[Raw, OBJECT]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class TextDelta(Tagged, tag="text_delta", frozen=True, kw_only=True):
    """More text."""

    text: str


class ThinkingDelta(Tagged, tag="thinking_delta", frozen=True, kw_only=True):
    """More thinking."""

    thinking: str


class SignatureDelta(Tagged, tag="signature_delta", frozen=True, kw_only=True):
    """The signature, after all thinking."""

    signature: str


class InputJSONDelta(Tagged, tag="input_json_delta", frozen=True, kw_only=True):
    """More of the JSON text of a call's input."""

    partial_json: str


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJSONDelta


class BlockStart(Tagged, tag="content_block_start", frozen=True, kw_only=True):
    """A block begins, empty."""

    index: int
    content_block: Block


class BlockDelta(Tagged, tag="content_block_delta", frozen=True, kw_only=True):
    """A block grows."""

    index: int
    delta: Delta


class BlockStop(Tagged, tag="content_block_stop", frozen=True, kw_only=True):
    """A block is complete."""

    index: int


def whole_blocks(turn: TurnDelta) -> list[Block]:
    """The blocks of a complete turn. White space alone is a block only if there is no other."""
    blocks: list[Block] = []
    if turn.reasoning:
        blocks.append(ThinkingBlock(thinking=turn.reasoning, signature=SIGNATURE))
    if turn.content.strip() or (turn.content and not blocks and not turn.calls):
        blocks.append(TextBlock(text=turn.content))
    return blocks + _whole_calls(turn.calls)


def _whole_calls(pieces: Sequence[CallDelta]) -> list[Block]:
    arguments: dict[int, str] = {}
    for piece in pieces:
        arguments[piece.index] = arguments.get(piece.index, "") + piece.arguments
    return [_tool_use(piece, _input(arguments[piece.index])) for piece in pieces if piece.name is not None]


def _tool_use(piece: CallDelta, arguments: Raw) -> ToolUseBlock:
    return ToolUseBlock(id=tool_use_id(piece.id or ""), name=piece.name or "", input=arguments)


def _input(arguments: str) -> Raw:
    """The arguments as they are, or none if they are no JSON object: if they were cut off, as a rule."""
    try:
        OBJECT.decode(arguments)
    except msgspec.DecodeError:
        return Raw(b"{}")
    return Raw(arguments.encode())


class BlockWriter:
    """Writes the blocks of a turn that comes in pieces."""

    def __init__(self) -> None:
        self._index = -1
        self._open: str | int | None = None
        """The block that is not complete: its type, or the number of its call."""
        self._space = ""
        """White space that may come before text; after something else it is worth no block."""

    def write(self, turn: TurnDelta) -> Iterator[Tagged]:
        """The events for what is new of the turn."""
        if turn.reasoning:
            empty = ThinkingBlock(thinking="", signature="")
            yield from self._add("thinking", empty, ThinkingDelta(thinking=turn.reasoning))
        text = self._space + turn.content
        if self._open == "text" or text.strip():
            self._space = ""
            if text:
                yield from self._add("text", TextBlock(text=""), TextDelta(text=text))
        else:
            self._space = text
        for call in turn.calls:
            yield from self._add(call.index, _tool_use(call, Raw(b"{}")), InputJSONDelta(partial_json=call.arguments))

    def finish(self) -> Iterator[Tagged]:
        """The events after the turn's last piece."""
        if self._index < 0 and self._space:
            yield from self._add("text", TextBlock(text=""), TextDelta(text=self._space))
        yield from self._stop()

    def _add(self, block: str | int, empty: Block, delta: Delta) -> Iterator[Tagged]:
        if self._open != block:
            yield from self._stop()
            self._open = block
            self._index += 1
            yield BlockStart(index=self._index, content_block=empty)
        yield BlockDelta(index=self._index, delta=delta)

    def _stop(self) -> Iterator[Tagged]:
        if self._open == "thinking":
            yield BlockDelta(index=self._index, delta=SignatureDelta(signature=SIGNATURE))
        if self._open is not None:
            yield BlockStop(index=self._index)
        self._open, self._space = None, ""
