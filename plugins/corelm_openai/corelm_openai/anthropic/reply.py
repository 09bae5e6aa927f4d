"""The reply of ``/v1/messages``."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal

import msgspec

from corelm.api import RequestOutput
from corelm_openai.anthropic.body import MessagesBody
from corelm_openai.anthropic.content import Block, BlockWriter, Tagged, whole_blocks
from corelm_openai.anthropic.errors import error_body
from corelm_openai.chat.body import ChatJob
from corelm_openai.chat.turns import TurnReader
from corelm_openai.generation.choices import ChoiceOutput
from corelm_openai.generation.replies import Reply
from corelm_openai.generation.vocabulary import Vocabulary
from corelm_openai.http.errors import Problem
from corelm_openai.http.sse import named_event


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a request. The first three together are its prompt."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int


class Message(Tagged, tag="message", frozen=True, kw_only=True):
    """A whole reply, or one that begins."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: Sequence[Block]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage


class MessageStart(Tagged, tag="message_start", frozen=True, kw_only=True):
    """The reply begins."""

    message: Message


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Why the reply ends."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(Tagged, tag="message_delta", frozen=True, kw_only=True):
    """The reply's last fields."""

    delta: Ending
    usage: Usage


class MessageStop(Tagged, tag="message_stop", frozen=True, kw_only=True):
    """The reply is complete."""


class MessageReply(Reply):
    """The reply."""

    id_prefix = "msg_"

    def __init__(self, body: MessagesBody, job: ChatJob, vocabulary: Vocabulary, request_id: str) -> None:
        super().__init__(job, vocabulary)
        self._model = body.model
        self._max_tokens = body.max_tokens
        self._request_id = request_id
        self._new_turn = job.new_turn
        self._writer = BlockWriter()
        self._started = False

    @cached_property
    def _turn(self) -> TurnReader:
        return self._new_turn()

    def body(self, outputs: Sequence[RequestOutput]) -> Message:
        output = outputs[0]
        self._count(0, output)
        blocks = whole_blocks(self._turn.push(output.text, last=True))
        ending = self._ending(output)
        return Message(
            id=self.id,
            model=self._model,
            content=blocks,
            stop_reason=ending.stop_reason,
            stop_sequence=ending.stop_sequence,
            usage=_usage(output),
        )

    def events(self, batch: Sequence[ChoiceOutput]) -> bytes:
        return b"".join([named_event(event.type, event) for _, output in batch for event in self._events(output)])

    def ending(self) -> bytes:
        event = MessageStop()
        return named_event(event.type, event)

    def failure(self, problem: Problem) -> bytes:
        return named_event("error", error_body(problem, self._request_id))

    def _events(self, output: RequestOutput) -> Iterable[Tagged]:
        if not self._started:
            self._started = True
            yield MessageStart(message=Message(id=self.id, model=self._model, content=(), usage=_usage(output)))
        last = output.finish_reason is not None
        yield from self._writer.write(self._turn.push(output.text, last=last))
        if last:
            self._count(0, output)
            yield from self._writer.finish()
            yield MessageDelta(delta=self._ending(output), usage=_usage(output))

    def _ending(self, last: RequestOutput) -> Ending:
        if last.finish_reason == "length":
            reached = last.completion_tokens >= self._max_tokens
            reason = "max_tokens" if reached else "model_context_window_exceeded"
            return Ending(stop_reason=reason, stop_sequence=None)
        if self._turn.called:
            return Ending(stop_reason="tool_use", stop_sequence=None)
        if last.stop_reason in self._job.params.stop:
            return Ending(stop_reason="stop_sequence", stop_sequence=str(last.stop_reason))
        return Ending(stop_reason="end_turn", stop_sequence=None)


def _usage(output: RequestOutput) -> Usage:
    return Usage(
        input_tokens=output.prompt_tokens - output.cached_tokens,
        cache_read_input_tokens=output.cached_tokens,
        output_tokens=output.completion_tokens,
    )
