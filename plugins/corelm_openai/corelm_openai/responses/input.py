"""The input of a request, as clients write it."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from corelm.api import InvalidRequestError
from corelm_openai.http.errors import shortened
from corelm_openai.responses.items import (
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    Refusal,
    new_id,
)

ROLES = ("user", "assistant", "system", "developer")
ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning", "item_reference")
MAX_ITEMS = 10_000
"""Of an input, and parts of an item: the time that more take is not for other requests to wait."""


class InputPart(msgspec.Struct, kw_only=True):
    """A piece of content."""

    type: Annotated[str, Meta(extra_json_schema={"enum": ("input_text", "output_text", "refusal", "reasoning_text")})]
    text: str | None = None
    refusal: str | None = None

    def read(self, where: str) -> InputText | OutputText | Refusal:
        """The part as it is kept. Raises `InvalidRequestError`, with `where` as its path."""
        match self.type:
            case "input_text":
                return InputText(text=_given(self.text, f"{where}.text"))
            case "output_text":
                return OutputText(text=_given(self.text, f"{where}.text"))
            case "refusal":
                return Refusal(refusal=_given(self.refusal, f"{where}.refusal"))
        raise InvalidRequestError(
            f"{where} is of type {shortened(self.type)}, which this model does not take; only text is supported",
            param=f"{where}.type",
        )


Content = str | Annotated[list[InputPart], Meta(max_length=MAX_ITEMS)]


class InputItem(msgspec.Struct, kw_only=True):
    """An item of any type: a message, if it does not say which. Fields of other types are ignored."""

    type: Annotated[str, Meta(extra_json_schema={"enum": ITEM_TYPES})] = "message"
    id: str | None = None
    role: Annotated[str, Meta(extra_json_schema={"enum": ROLES})] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None

    def read(self, where: str, recall: Callable[[str], Item | None]) -> Item:
        """The item as it is kept. `recall` finds the one that a reference names.

        Raises `InvalidRequestError`, with `where` as its path.
        """
        match self.type:
            case "message":
                return self._message(where)
            case "function_call":
                return FunctionCall(
                    id=self.id or new_id(FunctionCall),
                    call_id=_given(self.call_id, f"{where}.call_id"),
                    name=_given(self.name, f"{where}.name"),
                    arguments=_given(self.arguments, f"{where}.arguments"),
                )
            case "function_call_output":
                return FunctionCallOutput(
                    id=self.id or new_id(FunctionCallOutput),
                    call_id=_given(self.call_id, f"{where}.call_id"),
                    output=_text(self.output, f"{where}.output"),
                )
            case "reasoning":
                return Reasoning(id=self.id or new_id(Reasoning), content=self._thoughts(where))
            case "item_reference":
                return self._recalled(where, recall)
        raise InvalidRequestError(
            f"{where} is of type {shortened(self.type)}, which is not supported", param=f"{where}.type"
        )

    def _message(self, where: str) -> Message:
        role = _given(self.role, f"{where}.role")
        if role not in ROLES:
            raise InvalidRequestError(f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role")
        if self.content is None:
            raise _missing(f"{where}.content")
        if isinstance(self.content, str):
            text = OutputText(text=self.content) if role == "assistant" else InputText(text=self.content)
            return Message(id=self.id or new_id(Message), role=role, content=[text])
        if not self.content:
            raise InvalidRequestError(f"{where}.content is empty", param=f"{where}.content")
        parts = [part.read(f"{where}.content[{index}]") for index, part in enumerate(self.content)]
        return Message(id=self.id or new_id(Message), role=role, content=parts)

    def _thoughts(self, where: str) -> list[ReasoningText]:
        """The text, if it was sent: it may as well be a summary, or encrypted for another server."""
        if self.content is None:
            return []
        if isinstance(self.content, str):
            raise InvalidRequestError(f"{where}.content must be a list", param=f"{where}.content")
        return [
            ReasoningText(text=_given(part.text, f"{where}.content[{index}].text"))
            for index, part in enumerate(self.content)
        ]

    def _recalled(self, where: str, recall: Callable[[str], Item | None]) -> Item:
        name = _given(self.id, f"{where}.id")
        item = recall(name)
        if item is None:
            raise InvalidRequestError(f"{where}: there is no item {shortened(name)}", param=f"{where}.id")
        return item


def read_input(wire: str | Sequence[InputItem], recall: Callable[[str], Item | None]) -> list[Item]:
    """The items of an input, at least one. Raises `InvalidRequestError`."""
    if isinstance(wire, str):
        return [Message(id=new_id(Message), role="user", content=[InputText(text=wire)])]
    if not wire:
        raise InvalidRequestError("input is empty", param="input")
    return [item.read(f"input[{index}]", recall) for index, item in enumerate(wire)]


def _text(content: str | list[InputPart] | None, where: str) -> str:
    """Text parts are joined with a newline."""
    if content is None:
        raise _missing(where)
    if isinstance(content, str):
        return content
    parts = [part.read(f"{where}[{index}]") for index, part in enumerate(content)]
    return "\n".join(part.refusal if isinstance(part, Refusal) else part.text for part in parts)


def _given(value: str | None, where: str) -> str:
    if value is None:
        raise _missing(where)
    return value


def _missing(where: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where} is required", param=where)
