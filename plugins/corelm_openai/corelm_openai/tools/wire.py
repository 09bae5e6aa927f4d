"""Tools and their calls, in OpenAI's shape."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

FunctionType = Annotated[str, Meta(extra_json_schema={"enum": ("function",)})]
WhetherToCall = Annotated[str, Meta(extra_json_schema={"enum": ("none", "auto", "required")})]
parameters_decoder = msgspec.json.Decoder(dict[str, Any] | None)


class Function(msgspec.Struct, kw_only=True):
    """A function the model may call."""

    name: str
    description: str | None = None
    parameters: Annotated[Raw, parameters_decoder] = Raw()
    """A JSON Schema of an object. None are taken without it."""
    strict: bool | None = None
    """Makes no difference: the schema is kept to wherever a call is forced."""


class Tool(msgspec.Struct, kw_only=True):
    """A tool the model may call."""

    type: FunctionType
    function: Function | None = None


class NamedFunction(msgspec.Struct, kw_only=True):
    """A function by its name."""

    name: str


class NamedTool(msgspec.Struct, kw_only=True):
    """The tool that must be called."""

    type: FunctionType
    function: NamedFunction | None = None


class FunctionCall(msgspec.Struct, kw_only=True):
    """What was called, and with what."""

    name: str
    arguments: str
    """An object as JSON."""


class ToolCall(msgspec.Struct, kw_only=True):
    """A call in a message of the assistant's."""

    id: str | None = None
    type: FunctionType = "function"
    function: FunctionCall
