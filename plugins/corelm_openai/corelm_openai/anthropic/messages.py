"""The conversation on the wire, and as chat takes it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.chat.messages import MAX_MESSAGES, Message
from corelm_openai.generation.unsupported import asks
from corelm_openai.http.errors import shortened
from corelm_openai.tools.wire import FunctionCall, ToolCall

OBJECT = msgspec.json.Decoder(dict[str, Any])
ID_PREFIX = "toolu_"
TEXT = ("text",)
BLOCKS = {
    "user": (*TEXT, "tool_result"),
    "assistant": (*TEXT, "thinking", "redacted_thinking", "tool_use"),
    "system": TEXT,
}
"""What turns may consist of, by role."""


class Part(msgspec.Struct, kw_only=True):
    """A piece of text."""

    type: Annotated[str, Meta(extra_json_schema={"enum": TEXT})]
    text: str | None = None


Text = str | Annotated[list[Part], Meta(max_length=MAX_MESSAGES)]


class Block(Part, kw_only=True):
    """A piece of a turn. Which fields it has depends on its type."""

    type: Annotated[str, Meta(extra_json_schema={"enum": tuple(dict.fromkeys(chain(*BLOCKS.values())))})]
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Annotated[Raw, OBJECT] = Raw()
    tool_use_id: str | None = None
    content: Text | None = None
    is_error: bool | None = None


class Turn(msgspec.Struct, kw_only=True):
    """What one side says."""

    role: Annotated[str, Meta(extra_json_schema={"enum": tuple(BLOCKS)})]
    content: str | Annotated[list[Block], Meta(max_length=MAX_MESSAGES)]


P = TypeVar("P", bound=Part)


class Placed(NamedTuple, Generic[P]):
    """A piece and its path, for errors."""

    block: P
    where: str

    def required(self, field: str) -> str:
        """A string that pieces of this type must have. Raises `InvalidRequestError`."""
        value = getattr(self.block, field)
        if value is None:
            raise InvalidRequestError(f"{self.where}.{field}: is required", param=f"{self.where}.{field}")
        return str(value)


def text_of(content: Text, where: str) -> str:
    """Text, or text blocks joined with a newline. Raises `InvalidRequestError`."""
    return content if isinstance(content, str) else _join(_placed(content, where, TEXT))


def conversation(turns: Sequence[Turn]) -> list[Message]:
    """The turns in order; those of one side that follow each other are one. Raises `InvalidRequestError`."""
    messages: list[Message] = []
    for role, group in groupby(enumerate(turns), key=lambda item: item[1].role):
        items = [block for index, turn in group for block in _blocks(turn, f"messages[{index}]")]
        messages += READERS[role](items)
    return messages


def _blocks(turn: Turn, where: str) -> list[Placed[Block]]:
    if turn.role not in BLOCKS:
        raise InvalidRequestError(f"{where}.role: must be one of {', '.join(BLOCKS)}", param=f"{where}.role")
    where = f"{where}.content"
    if isinstance(turn.content, str):
        return [Placed(Block(type="text", text=turn.content), where)]
    return _placed(turn.content, where, BLOCKS[turn.role])


def _placed(pieces: Sequence[P], where: str, known: Sequence[str]) -> list[Placed[P]]:
    if not pieces:
        raise InvalidRequestError(f"{where}: is empty", param=where)
    for index, piece in enumerate(pieces):
        if piece.type not in known:
            reason = f"{shortened(piece.type)} is not supported here; only {', '.join(known)}"
            raise InvalidRequestError(f"{where}[{index}].type: {reason}", param=f"{where}[{index}].type")
    return [Placed(piece, f"{where}[{index}]") for index, piece in enumerate(pieces)]


def _join(items: Iterable[Placed[P]]) -> str:
    return "\n".join(item.required("text") for item in items)


def _system(items: Sequence[Placed[Block]]) -> Iterator[Message]:
    yield Message(role="system", content=_join(items))


def _user(items: Sequence[Placed[Block]]) -> Iterator[Message]:
    for is_result, group in groupby(items, key=lambda item: item.block.type == "tool_result"):
        if is_result:
            yield from map(_result, group)
        else:
            yield Message(role="user", content=_join(group))


def _result(item: Placed[Block]) -> Message:
    """What a tool gave. Chat has no other sign of an error than the text."""
    content = item.block.content
    text = text_of(content, f"{item.where}.content") if content else ""
    text = f"Error: {text}" if item.block.is_error else text
    return Message(role="tool", tool_call_id=_chat_id(item.required("tool_use_id")), content=text)


def _assistant(items: Sequence[Placed[Block]]) -> Iterator[Message]:
    by_type = {kind: [item for item in items if item.block.type == kind] for kind in BLOCKS["assistant"]}
    calls = [_call(item) for item in by_type["tool_use"]]
    texts = by_type["text"]
    yield Message(
        role="assistant",
        content=_join(texts) if texts or not calls else None,
        reasoning_content="\n".join(item.required("thinking") for item in by_type["thinking"]) or None,
        tool_calls=calls or None,
    )


def _call(item: Placed[Block]) -> ToolCall:
    arguments = bytes(item.block.input) if asks(item.block.input, ()) else b"{}"
    if not arguments.startswith(b"{"):
        raise InvalidRequestError(f"{item.where}.input: must be an object", param=f"{item.where}.input")
    function = FunctionCall(name=item.required("name"), arguments=arguments.decode())
    return ToolCall(id=_chat_id(item.required("id")), function=function)


def tool_use_id(chat_id: str) -> str:
    """The id of a call as Anthropic's clients know it."""
    return ID_PREFIX + chat_id.removeprefix("call_")


def _chat_id(tool_use_id: str) -> str:
    """Templates may be particular about ids, so what was put in front is taken away again."""
    return tool_use_id.removeprefix(ID_PREFIX)


READERS = {"user": _user, "assistant": _assistant, "system": _system}
"""What makes messages of turns, by role."""
