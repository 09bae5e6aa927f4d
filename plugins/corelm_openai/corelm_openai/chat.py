"""``POST /v1/chat/completions``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from corelm.api import Chat, InvalidRequestError, RequestOutput
from corelm_openai.choices import Job
from corelm_openai.decoding import decode_field
from corelm_openai.errors import shortened
from corelm_openai.logprobs import ChatLogprobs, PromptLogprobs, chat_logprobs, prompt_logprobs
from corelm_openai.replies import Choice, Envelope, Reply
from corelm_openai.requests import GenerationBody, TopCount
from corelm_openai.settings import OpenAISettings
from corelm_openai.unsupported import asks
from corelm_openai.vocabulary import Vocabulary

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

    unsupported_here: ClassVar[tuple[str, ...]] = ("best_of", "echo")

    messages: Annotated[list[Message], Meta(max_length=MAX_MESSAGES)]
    max_completion_tokens: int | None = None
    """The newer name of ``max_tokens``; it wins if both are given."""
    logprobs: bool | None = None
    top_logprobs: TopCount | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: Raw = Raw()
    best_of: Raw = Raw()
    echo: Raw = Raw()

    def job(self, settings: OpenAISettings, headers: Mapping[str, str], max_model_len: int | None) -> Job:
        """The engine request this asks for. Raises `InvalidRequestError`."""
        newer = self.max_completion_tokens is not None
        return self.make_job(
            [self._chat()],
            settings,
            headers,
            names={"max_tokens": "max_completion_tokens"} if newer else {},
            max_tokens=self.max_completion_tokens if newer else self.max_tokens,
            logprobs=self._logprobs(),
        )

    def _logprobs(self) -> int | None:
        if self.logprobs:
            return self.top_logprobs or 0
        if self.top_logprobs:
            raise InvalidRequestError("top_logprobs is only allowed when logprobs is true", param="top_logprobs")
        return None

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
        values = decode_field(self.chat_template_kwargs, _kwargs_decoder, name, MAX_TEMPLATE_KWARGS_BYTES) or {}
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


class PromptEnvelope(Envelope, frozen=True, kw_only=True):
    """A whole reply that shows the prompt's log-probabilities as well."""

    prompt_logprobs: PromptLogprobs


class ChatReply(Reply):
    """The reply."""

    id_prefix = "chatcmpl"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, model: str, job: Job, vocabulary: Vocabulary, *, include_usage: bool) -> None:
        super().__init__(model, job, vocabulary, include_usage=include_usage)
        self._begun: set[int] = set()

    def body(self, outputs: Sequence[RequestOutput]) -> Envelope:
        envelope = super().body(outputs)
        top = self._job.prompt_logprobs
        if top is None:
            return envelope
        shown = prompt_logprobs(outputs[0].prompt_logprobs or (), top, self._vocabulary)
        return PromptEnvelope(**msgspec.structs.asdict(envelope), prompt_logprobs=shown)

    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        message = AssistantMessage(content=output.text)
        logprobs = self._logprobs(output)
        return MessageChoice(index=index, message=message, logprobs=logprobs, finish_reason=output.finish_reason)

    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        if index not in self._begun:
            self._begun.add(index)
            yield DeltaChoice(index=index, delta=Delta(role="assistant", content=""), finish_reason=None)
        if output.text or output.logprobs:
            delta = Delta(content=output.text)
            yield DeltaChoice(index=index, delta=delta, logprobs=self._logprobs(output), finish_reason=None)
        if output.finish_reason:
            yield DeltaChoice(index=index, delta=Delta(), finish_reason=output.finish_reason)

    def _logprobs(self, output: RequestOutput) -> ChatLogprobs | None:
        return chat_logprobs(output.logprobs or (), self._vocabulary) if self._shows_logprobs else None
