"""The tools on the wire, and as chat takes them."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.anthropic.messages import OBJECT
from corelm_openai.generation.unsupported import asks
from corelm_openai.http.errors import shortened
from corelm_openai.tools import wire

CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Tool(msgspec.Struct, kw_only=True):
    """A tool the model may call."""

    name: str
    type: Annotated[str, Meta(extra_json_schema={"enum": ("custom",)})] | None = None
    """``custom``, or one of Anthropic's own tools, which are not there."""
    description: str | None = None
    input_schema: Annotated[Raw, OBJECT] = Raw()
    strict: bool | None = None


class ToolChoice(msgspec.Struct, kw_only=True):
    """Whether to call tools, and which."""

    type: Annotated[str, Meta(extra_json_schema={"enum": (*CHOICES, "tool")})]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def chat_tools(tools: Sequence[Tool]) -> list[wire.Tool]:
    """The same tools. Raises `InvalidRequestError`."""
    return [_chat_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def _chat_tool(tool: Tool, where: str) -> wire.Tool:
    if tool.type not in (None, "custom"):
        raise _refusal(f"{where}.type", f"{shortened(tool.type)} is not supported; only custom tools are")
    if not asks(tool.input_schema, ()):
        raise _refusal(f"{where}.input_schema", "is required")
    function = wire.Function(
        name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
    )
    return wire.Tool(type="function", function=function)


def chat_tool_choice(choice: ToolChoice) -> str | wire.NamedTool:
    """The same choice. Raises `InvalidRequestError`."""
    if choice.type == "tool":
        if choice.name is None:
            raise _refusal("tool_choice.name", "is required")
        return wire.NamedTool(type="function", function=wire.NamedFunction(name=choice.name))
    if choice.type not in CHOICES:
        raise _refusal("tool_choice.type", f"must be one of {', '.join(CHOICES)}, tool")
    return CHOICES[choice.type]


def _refusal(param: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {reason}", param=param)
