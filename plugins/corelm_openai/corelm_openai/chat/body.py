"""The request of ``/v1/chat/completions``."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Raw

from corelm.api import Chat, InvalidRequestError
from corelm_openai.chat.messages import MAX_MESSAGES, Message
from corelm_openai.chat.turns import TurnReader
from corelm_openai.generation.body import GenerationBody, TopCount
from corelm_openai.generation.choices import Job
from corelm_openai.http.decoding import decode_field
from corelm_openai.service import Service

MAX_TEMPLATE_KWARGS_BYTES = 2**14

_kwargs_decoder = msgspec.json.Decoder(dict[str, Any] | None)


class ChatJob(Job, frozen=True, kw_only=True):
    """A job whose outputs are turns of an assistant."""

    new_turn: Callable[[], TurnReader]
    """Makes the reader of one choice's text."""


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

    def job(self, service: Service, headers: Mapping[str, str]) -> ChatJob:
        """The engine request this asks for. Raises `InvalidRequestError`."""
        newer = self.max_completion_tokens is not None
        job = self.make_job(
            [self._chat()],
            service.settings,
            headers,
            names={"max_tokens": "max_completion_tokens"} if newer else {},
            max_tokens=self.max_completion_tokens if newer else self.max_tokens,
            logprobs=self._logprobs(),
        )
        return ChatJob(**msgspec.structs.asdict(job), new_turn=TurnReader)

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
