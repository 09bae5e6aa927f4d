"""From the request to that of a chat."""

from collections.abc import Mapping, Sequence

from corelm.api import InvalidRequestError
from corelm_openai.chat.body import ChatBody, ChatJob
from corelm_openai.chat.messages import Message
from corelm_openai.chat.renaming import Renaming
from corelm_openai.generation.structured import JsonSchema, ResponseFormat
from corelm_openai.http.errors import shortened
from corelm_openai.responses.body import FunctionTool, ResponseBody, TextOptions, ToolChoice
from corelm_openai.service import Service
from corelm_openai.tools.offer import read_functions
from corelm_openai.tools.wire import Function, NamedFunction, NamedTool, Tool

NAMES = Renaming(
    (r"^messages\b.*", "input"),
    (r"^(response_format(\.json_schema)?|structured_output)\b", "text.format"),
    (r"^max_(completion_)?tokens$", "max_output_tokens"),
    (r"^reasoning_effort$", "reasoning.effort"),
    (r"\.function\b", ""),
)


def response_job(
    body: ResponseBody, messages: Sequence[Message], service: Service, headers: Mapping[str, str]
) -> ChatJob:
    """What the engine is asked for. Raises `InvalidRequestError`."""
    instructions = [] if body.instructions is None else [Message(role="system", content=body.instructions)]
    choice = body.tool_choice
    chat = ChatBody(
        model=body.model,
        messages=[*instructions, *messages],
        tools=_tools(body.tools or (), choice),
        tool_choice=_tool_choice(choice),
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        max_completion_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        logprobs=body.shows_logprobs,
        top_logprobs=body.top_logprobs,
        stream=body.stream,
        user=body.safety_identifier or body.user,
        response_format=_response_format(body.text),
    )
    return NAMES.job(chat, service, headers)


def _response_format(text: TextOptions | None) -> ResponseFormat | None:
    if text is None or text.format is None:
        return None
    wanted = text.format
    if wanted.type != "json_schema":
        return ResponseFormat(type=wanted.type)
    if wanted.name is None:
        raise InvalidRequestError("text.format.name is required", param="text.format.name")
    schema = JsonSchema(name=wanted.name, description=wanted.description, schema=wanted.schema, strict=wanted.strict)
    return ResponseFormat(type=wanted.type, json_schema=schema)


def _tools(tools: Sequence[FunctionTool], choice: str | ToolChoice | None) -> list[Tool]:
    """Those that may be called."""
    known = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if isinstance(choice, str) or choice is None or choice.type != "allowed_tools":
        return known
    with NAMES.applied():
        read_functions(known)  # the reply shows those too that may not be called
    by_name = {tool.function.name: tool for tool in known if tool.function}
    return [by_name[name] for name in _allowed(choice, by_name)]


def _tool(tool: FunctionTool, where: str) -> Tool:
    if tool.type != "function":
        raise InvalidRequestError(
            f"{where} is of type {shortened(tool.type)}, which is not supported; only functions are",
            param=f"{where}.type",
        )
    if tool.name is None:
        raise InvalidRequestError(f"{where}.name is required", param=f"{where}.name")
    function = Function(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return Tool(type="function", function=function)


def _allowed(choice: ToolChoice, known: Mapping[str, Tool]) -> list[str]:
    names = [tool.name or "" for tool in choice.tools or ()]
    for index, name in enumerate(names):
        if name not in known:
            param = f"tool_choice.tools[{index}].name"
            raise InvalidRequestError(f"{param}: there is no tool named {shortened(name)}", param=param)
    if not names:
        raise InvalidRequestError("tool_choice.tools is empty", param="tool_choice.tools")
    return names


def _tool_choice(choice: str | ToolChoice | None) -> str | NamedTool | None:
    if isinstance(choice, str) or choice is None:
        return choice
    if choice.type == "allowed_tools":
        return choice.mode or "auto"
    if choice.type != "function":
        raise InvalidRequestError("tool_choice.type must be function or allowed_tools", param="tool_choice.type")
    if choice.name is None:
        raise InvalidRequestError("tool_choice.name is required", param="tool_choice.name")
    return NamedTool(type="function", function=NamedFunction(name=choice.name))
