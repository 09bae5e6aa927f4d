"""The events of a streamed response."""

import itertools
from typing import Annotated, Any, cast

import msgspec
from msgspec import Raw

from corelm_openai.http.errors import ErrorDetail
from corelm_openai.http.sse import named_event
from corelm_openai.responses.items import Logprobs, OutputItem, OutputText, ReasoningText
from corelm_openai.responses.shape import ResponseObject

_response = msgspec.json.Decoder(ResponseObject)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Any of them."""

    sequence_number: int
    """From 0."""


class _ResponseEvent(Event, frozen=True, kw_only=True):
    response: Annotated[Raw, _response]
    """As it is now."""


class Created(_ResponseEvent, frozen=True, kw_only=True, tag="response.created"):
    """The first event."""


class Queued(_ResponseEvent, frozen=True, kw_only=True, tag="response.queued"):
    """The response waits: only in the background."""


class InProgress(_ResponseEvent, frozen=True, kw_only=True, tag="response.in_progress"):
    """The model is at work."""


class Completed(_ResponseEvent, frozen=True, kw_only=True, tag="response.completed"):
    """The last event of a response that the model ended."""


class Incomplete(_ResponseEvent, frozen=True, kw_only=True, tag="response.incomplete"):
    """The last event of a response that was cut off."""


class Failed(_ResponseEvent, frozen=True, kw_only=True, tag="response.failed"):
    """The last event of a response that failed."""


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """What went wrong, before `Failed`. OpenAI documents the fields as they are here, and sends them in `error`."""

    code: str | None
    message: str
    param: str | None
    error: ErrorDetail


class _ItemEvent(Event, frozen=True, kw_only=True):
    output_index: int


class ItemAdded(_ItemEvent, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins."""

    item: OutputItem


class ItemDone(_ItemEvent, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole."""

    item: OutputItem


class _PieceEvent(_ItemEvent, frozen=True, kw_only=True):
    item_id: str


class _PartEvent(_PieceEvent, frozen=True, kw_only=True):
    content_index: int = 0


class PartAdded(_PartEvent, frozen=True, kw_only=True, tag="response.content_part.added"):
    """A part of an item's content begins."""

    part: OutputText | ReasoningText


class PartDone(_PartEvent, frozen=True, kw_only=True, tag="response.content_part.done"):
    """A part is whole."""

    part: OutputText | ReasoningText


class TextDelta(_PartEvent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More of a text."""

    delta: str
    logprobs: Logprobs


class TextDone(_PartEvent, frozen=True, kw_only=True, tag="response.output_text.done"):
    """A whole text."""

    text: str
    logprobs: Logprobs


class ReasoningDelta(_PartEvent, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """More of what the model thinks."""

    delta: str


class ReasoningDone(_PartEvent, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """All that the model thought."""

    text: str


class ArgumentsDelta(_PieceEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    delta: str


class ArgumentsDone(_PieceEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """All the arguments of a call."""

    name: str
    arguments: str


ALL = (
    *(Created, Queued, InProgress, Completed, Incomplete, Failed, Error),
    *(ItemAdded, ItemDone, PartAdded, PartDone, TextDelta, TextDone),
    *(ReasoningDelta, ReasoningDone, ArgumentsDelta, ArgumentsDone),
)


class EventWriter:
    """Numbers the events of one response."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def event(self, kind: type[Event], **fields: Any) -> bytes:
        """The next event, as it is sent."""
        name = cast("str", kind.__struct_config__.tag)
        return named_event(name, kind(sequence_number=next(self._numbers), **fields))
