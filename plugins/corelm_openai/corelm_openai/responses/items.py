"""Items: what a conversation consists of."""

from typing import Annotated, Literal
from uuid import uuid4

import msgspec
from msgspec import Raw

from corelm_openai.generation.logprobs import ContentLogprob

Logprobs = Annotated[Raw, msgspec.json.Decoder(list[ContentLogprob])]
"""Encoded once, as they are long, and told several times."""
NO_LOGPROBS = Raw(b"[]")
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class _Typed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What says its own type in JSON."""


class InputText(_Typed, frozen=True, kw_only=True, tag="input_text"):
    """Text that was sent."""

    text: str


class OutputText(_Typed, frozen=True, kw_only=True, tag="output_text"):
    """Text that a model wrote."""

    text: str
    annotations: tuple[()] = ()
    logprobs: Logprobs = NO_LOGPROBS


class Refusal(_Typed, frozen=True, kw_only=True, tag="refusal"):
    """A model's reason for not answering. Comes from other servers."""

    refusal: str


class ReasoningText(_Typed, frozen=True, kw_only=True, tag="reasoning_text"):
    """What a model thought."""

    text: str


class Message(_Typed, frozen=True, kw_only=True, tag="message"):
    """What somebody said."""

    id: str
    status: ItemStatus = "completed"
    role: str
    content: list[InputText | OutputText | Refusal]


class FunctionCall(_Typed, frozen=True, kw_only=True, tag="function_call"):
    """A call that a model asks for."""

    id: str
    status: ItemStatus = "completed"
    call_id: str
    name: str
    arguments: str
    """JSON."""


class FunctionCallOutput(_Typed, frozen=True, kw_only=True, tag="function_call_output"):
    """What a call returned."""

    id: str
    status: ItemStatus = "completed"
    call_id: str
    output: str


class Reasoning(_Typed, frozen=True, kw_only=True, tag="reasoning"):
    """A model's thoughts before it answers."""

    id: str
    status: ItemStatus = "completed"
    summary: tuple[()] = ()
    content: list[ReasoningText]


OutputItem = Message | FunctionCall | Reasoning
Item = OutputItem | FunctionCallOutput

ID_PREFIXES: dict[type[Item], str] = {
    Message: "msg",
    FunctionCall: "fc",
    FunctionCallOutput: "fco",
    Reasoning: "rs",
}


def new_id(kind: type[Item]) -> str:
    """An id that nobody can guess."""
    return f"{ID_PREFIXES[kind]}_{uuid4().hex}"
