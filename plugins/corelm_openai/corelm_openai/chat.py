"""``POST /v1/chat/completions``."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from corelm.api import Chat, InvalidRequestError, RequestOutput
from corelm_openai.choices import Job
from corelm_openai.replies import Choice, Reply
from corelm_openai.requests import GenerationBody
from corelm_openai.settings import OpenAISettings

ROLES = ("system", "developer", "user", "assistant", "tool")


class Part(msgspec.Struct, kw_only=True):
    """A piece of a message's content."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, kw_only=True):
    """One turn of the conversation."""

    role: str
    content: str | list[Part] | None = None
    tool_calls: Any = None
    function_call: Any = None

    def plain(self, where: str) -> dict[str, str]:
        """Role and content as text; text parts are joined with a newline. `where` is the path for errors."""
        if self.role not in ROLES:
            raise InvalidRequestError(f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role")
        for name in ("tool_calls", "function_call"):
            if getattr(self, name):
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
            f"{where} is of type {part.type}, which this model does not take; only text is supported",
            param=f"{where}.type",
        )
    if part.text is None:
        raise InvalidRequestError(f"{where}.text is required", param=f"{where}.text")
    return part.text


class ChatBody(GenerationBody, kw_only=True):
    """The request."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    """The newer name of ``max_tokens``; it wins if both are given."""
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def job(self, settings: OpenAISettings) -> Job:
        """The engine request this asks for. Raises `InvalidRequestError`."""
        params = self.sampling(max_n=settings.max_n, max_tokens=self._max_tokens())
        return Job(prompts=[self._chat()], params=params, priority=self.priority or 0, tenant=self.user)

    def _max_tokens(self) -> int | None:
        if self.max_completion_tokens is None:
            return self.max_tokens
        if self.max_completion_tokens < 1:
            raise InvalidRequestError("max_completion_tokens must be at least 1", param="max_completion_tokens")
        return self.max_completion_tokens

    def _chat(self) -> Chat:
        if not self.messages:
            raise InvalidRequestError("messages is empty", param="messages")
        template_kwargs = self.chat_template_kwargs or {}
        if "chat_template" in template_kwargs:
            raise InvalidRequestError(
                "chat_template cannot be given in a request", param="chat_template_kwargs.chat_template"
            )
        return Chat(
            messages=[message.plain(f"messages[{index}]") for index, message in enumerate(self.messages)],
            add_generation_prompt=self.add_generation_prompt is not False,
            template_kwargs=template_kwargs,
        )


body_decoder = msgspec.json.Decoder(ChatBody)


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    role: str = "assistant"
    content: str
    refusal: None = None


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class MessageChoice(Choice, frozen=True, kw_only=True):
    """A whole choice."""

    message: AssistantMessage


class DeltaChoice(Choice, frozen=True, kw_only=True):
    """A piece of a choice."""

    delta: Delta


class ChatReply(Reply):
    """The reply."""

    id_prefix = "chatcmpl"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, model: str, *, choices_per_prompt: int, include_usage: bool) -> None:
        super().__init__(model, choices_per_prompt=choices_per_prompt, include_usage=include_usage)
        self._begun: set[int] = set()

    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        message = AssistantMessage(content=output.text)
        return MessageChoice(index=index, message=message, finish_reason=output.finish_reason)

    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        if index not in self._begun:
            self._begun.add(index)
            yield DeltaChoice(index=index, delta=Delta(role="assistant", content=""), finish_reason=None)
        if output.text:
            yield DeltaChoice(index=index, delta=Delta(content=output.text), finish_reason=None)
        if output.finish_reason:
            yield DeltaChoice(index=index, delta=Delta(), finish_reason=output.finish_reason)
