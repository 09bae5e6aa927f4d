"""The messages of a conversation."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.generation.unsupported import asks
from corelm_openai.http.errors import shortened

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 10_000
"""Also the most parts of a message. More are refused: the time they take is not for the other requests to wait."""


class Part(msgspec.Struct, kw_only=True):
    """A piece of a message's content."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, kw_only=True):
    """One turn of the conversation."""

    role: str
    content: str | Annotated[list[Part], Meta(max_length=MAX_MESSAGES)] | None = None
    tool_calls: Raw = Raw()
    function_call: Raw = Raw()

    def plain(self, where: str) -> dict[str, str]:
        """Role and content as text; text parts are joined with a newline. `where` is the path for errors."""
        if self.role not in ROLES:
            raise InvalidRequestError(f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role")
        for name in ("tool_calls", "function_call"):
            if asks(getattr(self, name)):
                raise InvalidRequestError(f"{where}.{name} is not supported", param=f"{where}.{name}")
        return {"role": self.role, "content": self._text(f"{where}.content")}

    def _text(self, where: str) -> str:
        if isinstance(self.content, str):
            return self.content
        if not self.content:
            raise InvalidRequestError(f"{where} is empty", param=where)
        return "\n".join(_part_text(part, f"{where}[{index}]") for index, part in enumerate(self.content))


def _part_text(part: Part, where: str) -> str:
    if part.type != "text":
        raise InvalidRequestError(
            f"{where} is of type {shortened(part.type)}, which this model does not take; only text is supported",
            param=f"{where}.type",
        )
    if part.text is None:
        raise InvalidRequestError(f"{where}.text is required", param=f"{where}.text")
    return part.text
