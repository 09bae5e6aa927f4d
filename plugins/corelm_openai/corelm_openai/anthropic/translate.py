"""From Anthropic's requests to those of chat."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from corelm.api import EngineClient, InvalidRequestError
from corelm_openai.anthropic.body import EFFORTS, THINKING, ConversationBody, MessagesBody, OutputFormat
from corelm_openai.anthropic.messages import conversation, text_of
from corelm_openai.anthropic.tools import chat_tool_choice, chat_tools
from corelm_openai.chat.body import ChatBody, ChatJob
from corelm_openai.chat.messages import Message
from corelm_openai.chat.renaming import Renaming
from corelm_openai.generation.structured import JsonSchema, ResponseFormat
from corelm_openai.service import Service

NAMES = Renaming(
    (r"\.function\.parameters\b", ".input_schema"),
    (r"\.function\b", ""),
    (r"^(response_format(\.json_schema)?|structured_output)\b", "output_config.format"),
    (r"^stop\b", "stop_sequences"),
    (r"^(user|tenant)$", "metadata.user_id"),
)


def messages_job(body: MessagesBody, service: Service, headers: Mapping[str, str]) -> ChatJob:
    """What a request for a message asks of the engine. Raises `InvalidRequestError`."""
    return _job(
        body,
        service,
        headers,
        max_tokens=body.max_tokens,
        stop=body.stop_sequences,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stream=body.stream,
        user=body.metadata and body.metadata.user_id,
    )


def conversation_job(body: ConversationBody, service: Service, headers: Mapping[str, str]) -> ChatJob:
    """A job with the prompt of a conversation. Raises `InvalidRequestError`."""
    return _job(body, service, headers)


async def fitted(job: ChatJob, engine: EngineClient) -> ChatJob:
    """The same job, but with no more output than the context has room for: here that is no error.

    Its prompt is tokens, as they are known now. Raises what `EngineClient.tokenize` raises.
    """
    token_ids = await engine.tokenize(job.prompts[0])
    room = (engine.model.max_model_len or 0) - len(token_ids)
    max_tokens = min(job.params.max_tokens or 0, max(room, 1))  # a prompt that leaves no room is refused
    params = msgspec.structs.replace(job.params, max_tokens=max_tokens)
    return msgspec.structs.replace(job, prompts=[token_ids], params=params)


def _job(body: ConversationBody, service: Service, headers: Mapping[str, str], **generation: Any) -> ChatJob:
    body.refuse_unsupported()
    messages = _messages(body)
    prefill = messages[-1].role == "assistant"
    chat = ChatBody(
        model=body.model,
        messages=messages,
        add_generation_prompt=not prefill,
        continue_final_message=prefill,
        **_tools(body),
        response_format=_format(body.output_config.format) if body.output_config else None,
        **_reasoning(body),
        **generation,
    )
    return NAMES.job(chat, service, headers)


def _messages(body: ConversationBody) -> list[Message]:
    """Never empty. A last turn of the assistant's is the beginning of the reply, unless it says nothing."""
    system = [Message(role="system", content=text_of(body.system, "system"))] if body.system else []
    turns = conversation(body.messages)
    if turns and turns[-1].tool_calls:
        raise InvalidRequestError("messages: the last one has a tool_use without its tool_result", param="messages")
    if turns and turns[-1].role == "assistant" and not turns[-1].content:
        turns.pop()
    if not turns:
        raise InvalidRequestError("messages: is empty", param="messages")
    return system + turns


def _tools(body: ConversationBody) -> dict[str, Any]:
    choice = body.tool_choice
    return {
        "tools": chat_tools(body.tools) if body.tools else None,
        "tool_choice": chat_tool_choice(choice) if choice else None,
        "parallel_tool_calls": False if choice and choice.disable_parallel_tool_use else None,
    }


def _reasoning(body: ConversationBody) -> dict[str, Any]:
    """Without a wish the template decides whether the model thinks, and the reply shows what comes."""
    effort = body.output_config.effort if body.output_config else None
    if effort is not None:
        _check_one_of("output_config.effort", effort, EFFORTS)
        effort = EFFORTS[effort]
    if body.thinking is None:
        return {"reasoning_effort": effort}
    _check_one_of("thinking.type", body.thinking.type, THINKING)
    if body.thinking.type == "disabled":
        return {"reasoning_effort": "none", "include_reasoning": False}
    return {
        "reasoning_effort": effort,
        "include_reasoning": body.thinking.display != "omitted",
        "chat_template_kwargs": Raw(b'{"enable_thinking": true}'),
    }


def _format(form: OutputFormat | None) -> ResponseFormat | None:
    if form is None:
        return None
    _check_one_of("output_config.format.type", form.type, ("json_schema",))
    return ResponseFormat(type="json_schema", json_schema=JsonSchema(name="output", schema=form.schema))


def _check_one_of(param: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise InvalidRequestError(f"{param}: must be one of {', '.join(known)}", param=param)
