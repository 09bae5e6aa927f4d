"""The tools of a request, checked."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from corelm.api import InvalidRequestError
from corelm_openai.formats import ToolFunction
from corelm_openai.generation.structured import NAME_CHARACTERS
from corelm_openai.http.decoding import decode_field
from corelm_openai.http.errors import shortened
from corelm_openai.tools.wire import NamedTool, Tool, parameters_decoder

MAX_PARAMETERS_BYTES = 2**18
"""Of all functions together, as a grammar may have no more."""

_name = re.compile(NAME_CHARACTERS)


class Offer(NamedTuple):
    """What the model may call."""

    functions: Sequence[ToolFunction]
    described: Sequence[dict[str, Any]]
    """The same as `corelm.api.Chat` has them."""
    forced: Sequence[ToolFunction]
    """If there are any, one of these must be called."""
    named: bool
    """Whether the request named the function to call."""
    parallel: bool
    """Whether more than one call may be made."""


def offer(tools: Sequence[Tool] | None, choice: str | NamedTool | None, parallel: bool | None) -> Offer | None:
    """What a request offers; None if the model may call nothing. Raises `InvalidRequestError`."""
    functions = read_functions(tools or ())
    forced = _forced(functions, choice)
    if not functions or choice == "none":
        return None
    named = isinstance(choice, NamedTool)
    return Offer(functions, list(map(_described, functions)), forced, named, parallel is not False and not named)


def _forced(functions: Sequence[ToolFunction], choice: str | NamedTool | None) -> Sequence[ToolFunction]:
    param = "tool_choice"
    if choice in ("none", "auto", None):
        return ()
    if isinstance(choice, str):
        if choice != "required":
            raise InvalidRequestError(
                f"{param} must be none, auto, required or a function, not {shortened(choice)}", param=param
            )
        wanted = functions
    elif choice is None or choice.type != "function" or choice.function is None:
        raise InvalidRequestError(f"{param} must be of type function and have a function", param=param)
    else:
        name = choice.function.name
        wanted = [function for function in functions if function.name == name]
        if functions and not wanted:
            raise InvalidRequestError(f"{param} names {shortened(name)}, which is not in tools", param=param)
    if not functions:
        raise InvalidRequestError(f"{param} asks for a call, and tools has none to make", param=param)
    return wanted


def read_functions(tools: Sequence[Tool]) -> list[ToolFunction]:
    """The functions of tools, which have different names. Raises `InvalidRequestError`."""
    functions: dict[str, ToolFunction] = {}
    room = MAX_PARAMETERS_BYTES
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        function = _function(tool, where, room)
        if function.name in functions:
            raise InvalidRequestError(
                f"{where}.function.name is {function.name} like that of another", param=f"{where}.function.name"
            )
        functions[function.name] = function
        room -= len(bytes(tool.function.parameters)) if tool.function else 0
    return list(functions.values())


def _function(tool: Tool, where: str, room: int) -> ToolFunction:
    if tool.type != "function":
        raise InvalidRequestError(
            f"{where} is of type {shortened(tool.type)}; only function is supported", param=f"{where}.type"
        )
    where = f"{where}.function"
    function = tool.function
    if function is None:
        raise InvalidRequestError(f"{where} is required", param=where)
    if not _name.fullmatch(function.name):
        raise InvalidRequestError(f"{where}.name must have 1 to 64 letters, digits, _, - or .", param=f"{where}.name")
    param = f"{where}.parameters"
    if len(bytes(function.parameters)) > room:
        raise InvalidRequestError(
            f"the parameters of all tools must have at most {MAX_PARAMETERS_BYTES} bytes", param="tools"
        )
    schema = decode_field(function.parameters, parameters_decoder, param, room) or {"properties": {}}
    if schema.get("type", "object") != "object":
        raise InvalidRequestError(f'{param} must be a schema of the type "object"', param=param)
    return ToolFunction(
        name=function.name, description=function.description or "", parameters={"type": "object", **schema}
    )


def _described(function: ToolFunction) -> dict[str, Any]:
    described = {"name": function.name, "description": function.description, "parameters": function.parameters}
    return {"type": "function", "function": described}
