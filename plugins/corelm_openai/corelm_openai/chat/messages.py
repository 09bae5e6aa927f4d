"""The messages of a conversation."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.generation.unsupported import asks
from corelm_openai.http.decoding import decode
from corelm_openai.http.errors import shortened
from corelm_openai.tools.wire import ToolCall

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 10_000
"""Also the most parts, or calls, of a message. More are refused: the time they take is not for the other requests to
wait."""

_object = msgspec.json.Decoder(dict[str, Any])


class Part(msgspec.Struct, kw_only=True):
    """A piece of a message's content."""

    type: Annotated[str, Meta(extra_json_schema={"enum": ("text", "refusal")})]
    text: str | None = None
    refusal: str | None = None


class Message(msgspec.Struct, kw_only=True):
    """One turn of the conversation."""

    role: Annotated[str, Meta(extra_json_schema={"enum": ROLES})]
    content: str | Annotated[list[Part], Meta(max_length=MAX_MESSAGES)] | None = None
    name: str | None = None
    refusal: str | None = None
    """What the assistant said in place of `content`."""
    reasoning_content: str | None = None
    """What the assistant thought. Templates say whether the model is shown it."""
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_MESSAGES)] | None = None
    tool_call_id: str | None = None
    function_call: Raw = Raw()

    def plain(self, where: str) -> dict[str, Any]:
        """The message as `corelm.api.Chat` has it; text parts are joined with a newline.

        `where` is the path for errors. Raises `InvalidRequestError`.
        """
        self._check(where)
        message = {
            "role": self.role,
            "content": self._text(f"{where}.content"),
            "name": self.name,
            "reasoning_content": self.reasoning_content,
            "tool_calls": self._calls(f"{where}.tool_calls"),
            "tool_call_id": self.tool_call_id,
        }
        return {name: value for name, value in message.items() if value is not None or name == "content"}

    def _check(self, where: str) -> None:
        if self.role not in ROLES:
            raise InvalidRequestError(f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role")
        if asks(self.function_call):
            raise InvalidRequestError(
                f"{where}.function_call is not supported; use tool_calls", param=f"{where}.function_call"
            )
        for name, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
            if getattr(self, name) and self.role != role:
                raise InvalidRequestError(
                    f"{where}.{name} is only allowed in messages with the role {role}", param=f"{where}.{name}"
                )

    def _text(self, where: str) -> str | None:
        if isinstance(self.content, str):
            return self.content
        if self.content:
            return "\n".join(self._part_text(part, f"{where}[{index}]") for index, part in enumerate(self.content))
        if self.tool_calls:
            return None
        if self.refusal is not None and self.content is None:
            return self.refusal
        raise InvalidRequestError(f"{where} is empty", param=where)

    def _part_text(self, part: Part, where: str) -> str:
        kinds = {"text": part.text, "refusal": part.refusal} if self.role == "assistant" else {"text": part.text}
        if part.type not in kinds:
            raise InvalidRequestError(
                f"{where} is of type {shortened(part.type)}, which this model does not take; only text is supported",
                param=f"{where}.type",
            )
        text = kinds[part.type]
        if text is None:
            raise InvalidRequestError(f"{where}.{part.type} is required", param=f"{where}.{part.type}")
        return text

    def _calls(self, where: str) -> list[dict[str, Any]] | None:
        if not self.tool_calls:
            return None
        return [_call(call, f"{where}[{index}]") for index, call in enumerate(self.tool_calls)]


Messages = Annotated[list[Message], Meta(max_length=MAX_MESSAGES, extra_json_schema={"minItems": 1})]


def _call(call: ToolCall, where: str) -> dict[str, Any]:
    """A call as `corelm.api.Chat` has it, with its arguments as an object."""
    if call.type != "function":
        raise InvalidRequestError(f"{where}.type must be function", param=f"{where}.type")
    param = f"{where}.function.arguments"
    try:
        arguments = decode((call.function.arguments.strip() or "{}").encode(), _object)
    except InvalidRequestError:
        raise InvalidRequestError(f"{param} must be an object as JSON", param=param) from None
    function = {"name": call.function.name, "arguments": arguments}
    return {"type": "function", "function": function} | ({} if call.id is None else {"id": call.id})
