"""``POST /v1/chat/completions``."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from corelm.api import Chat, InvalidRequestError, RequestOutput
from corelm_openai.choices import Job
from corelm_openai.decoding import decode
from corelm_openai.errors import shortened
from corelm_openai.replies import Choice, Reply
from corelm_openai.requests import GenerationBody
from corelm_openai.settings import OpenAISettings
from corelm_openai.unsupported import asks

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 10_000
"""Also the most parts of a message. More are refused: the time they take is not for the other requests to wait."""
MAX_TEMPLATE_KWARGS_BYTES = 2**14

_kwargs_decoder = msgspec.json.Decoder(dict[str, Any] | None)


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


class ChatBody(GenerationBody, kw_only=True):
    """The request."""

    messages: Annotated[list[Message], Meta(max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, Meta(ge=1, lt=2**31)] | None = None
    """The newer name of ``max_tokens``; it wins if both are given."""
    add_generation_prompt: bool | None = None
    chat_template_kwargs: Raw = Raw()

    def job(self, settings: OpenAISettings, max_model_len: int | None) -> Job:
        """The engine request this asks for. Raises `InvalidRequestError`."""
        newer = self.max_completion_tokens is not None
        max_tokens = self.max_completion_tokens if newer else self.max_tokens
        return Job(
            prompts=[self._chat()],
            params=self.sampling(max_n=settings.max_n, max_tokens=max_tokens),
            priority=self.priority or 0,
            tenant=self.user,
            max_tokens_name="max_completion_tokens" if newer else "max_tokens",
        )

    def _chat(self) -> Chat:
        if not self.messages:
            raise InvalidRequestError("messages is empty", param="messages")
        return Chat(
            messages=[message.plain(f"messages[{index}]") for index, message in enumerate(self.messages)],
            add_generation_prompt=self.add_generation_prompt is not False,
            template_kwargs=self._template_kwargs(),
        )

    def _template_kwargs(self) -> dict[str, Any]:
        name = "chat_template_kwargs"
        data = bytes(self.chat_template_kwargs) or b"null"
        if len(data) > MAX_TEMPLATE_KWARGS_BYTES:
            raise InvalidRequestError(f"{name} must have at most {MAX_TEMPLATE_KWARGS_BYTES} bytes", param=name)
        values = decode(data, _kwargs_decoder, name) or {}
        if "chat_template" in values:
            raise InvalidRequestError("chat_template cannot be given in a request", param=f"{name}.chat_template")
        return values


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
