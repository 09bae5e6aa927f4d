"""The response object."""

import time
from typing import Any, Literal

import msgspec

from corelm_openai.chat.body import ChatJob
from corelm_openai.http.errors import Problem
from corelm_openai.responses.body import FunctionTool, ReasoningOptions, ResponseBody, TextFormat, ToolChoice
from corelm_openai.responses.items import OutputItem

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Which input tokens cost less."""

    cached_tokens: int
    cache_write_tokens: int = 0
    """Writing to the cache costs nothing."""


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What output tokens were for."""

    reasoning_tokens: int
    """An estimate: the share that the thoughts have of the text's characters."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response ends too early."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ShownText(msgspec.Struct, frozen=True, kw_only=True):
    """What the text must be like."""

    format: TextFormat = TextFormat(type="text")
    verbosity: Literal["medium"] = "medium"


class ShownReasoning(msgspec.Struct, frozen=True, kw_only=True):
    """How to think."""

    effort: str | None = None
    summary: str | None = None


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """The response and what was asked for."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status
    background: bool
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ShownReasoning
    safety_identifier: str | None
    service_tier: Literal["default"] = "default"
    store: bool
    temperature: float
    text: ShownText
    tool_choice: str | ToolChoice
    tools: list[FunctionTool]
    top_logprobs: int
    top_p: float
    truncation: str
    usage: Usage | None = None
    user: str | None


def new_response(response_id: str, body: ResponseBody, job: ChatJob) -> ResponseObject:
    """The response at its beginning."""
    return ResponseObject(
        id=response_id,
        created_at=int(time.time()),
        status="queued" if body.background else "in_progress",
        background=bool(body.background),
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        metadata=body.read_metadata(),
        model=body.model,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=_reasoning(body.reasoning or ReasoningOptions()),
        safety_identifier=body.safety_identifier,
        store=body.stored,
        temperature=job.params.temperature,
        text=ShownText() if body.text is None or body.text.format is None else ShownText(format=body.text.format),
        tool_choice="auto" if body.tool_choice is None else body.tool_choice,
        tools=body.tools or [],
        top_logprobs=body.top_logprobs or 0,
        top_p=job.params.top_p,
        truncation=body.truncation or "disabled",
        user=body.user,
    )


def _reasoning(asked: ReasoningOptions) -> ShownReasoning:
    return ShownReasoning(effort=asked.effort, summary=asked.summary or asked.generate_summary)


def ended(response: ResponseObject, status: Status, output: list[OutputItem], **fields: Any) -> ResponseObject:
    """The response at its end."""
    return msgspec.structs.replace(
        response,
        status=status,
        output=output,
        completed_at=int(time.time()) if status == "completed" else None,
        incomplete_details=IncompleteDetails() if status == "incomplete" else None,
        **fields,
    )


def error_of(problem: Problem) -> ResponseError:
    """What a failed response says of the reason."""
    code = "rate_limit_exceeded" if problem.status == 429 else "server_error"
    if 400 <= problem.status < 429:
        code = "invalid_prompt"
    return ResponseError(code=code, message=problem.body.error.message)
