"""The reply of ``/v1/responses``."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from corelm.api import RequestOutput
from corelm_openai.chat.body import ChatJob
from corelm_openai.chat.turns import TurnReader
from corelm_openai.generation.choices import ChoiceOutput
from corelm_openai.generation.logprobs import ContentLogprob, chat_logprobs
from corelm_openai.generation.replies import Reply
from corelm_openai.generation.vocabulary import Vocabulary
from corelm_openai.http.errors import Problem
from corelm_openai.responses.body import ResponseBody
from corelm_openai.responses.events import (
    Completed,
    Created,
    Error,
    Event,
    EventWriter,
    Failed,
    Incomplete,
    InProgress,
    Queued,
)
from corelm_openai.responses.items import ItemStatus
from corelm_openai.responses.output import OutputWriter
from corelm_openai.responses.shape import (
    InputTokensDetails,
    OutputTokensDetails,
    ResponseObject,
    Status,
    Usage,
    ended,
    error_of,
    new_response,
)

OnEnd = Callable[[ResponseObject, bytes], None]


class ResponseReply(Reply):
    """The reply. `on_end` is told of a response in events, and its JSON, before the last of them is sent."""

    id_prefix = "resp_"

    def __init__(self, body: ResponseBody, job: ChatJob, vocabulary: Vocabulary, on_end: OnEnd | None) -> None:
        super().__init__(job, vocabulary)
        self.response = new_response(self.id, body, job)
        """As it is now."""
        self._on_end = on_end
        self._new_turn = job.new_turn
        self._turn: TurnReader | None = None
        self._shows_logprobs = job.params.logprobs is not None
        self._events = EventWriter()
        self._output = OutputWriter(self._events)
        self._opened = self._began = False
        self._cut = False
        """Whether the output ended for want of room."""

    def body(self, outputs: Sequence[RequestOutput]) -> ResponseObject:
        (output,) = outputs
        self._push(output)
        self._close()
        return self.response

    def events(self, batch: Sequence[ChoiceOutput]) -> bytes:
        return b"".join(self.tell(batch))

    def ending(self) -> bytes:
        return b"".join(self.tell_end())

    def failure(self, problem: Problem) -> bytes:
        return b"".join(self.tell_failure(problem))

    def tell_opening(self) -> list[bytes]:
        """The events before there is any output."""
        self._opened = True
        now = self._now()
        kinds = [Created, Queued] if self.response.status == "queued" else [Created]
        return [self._events.event(kind, response=now) for kind in kinds]

    def tell(self, batch: Sequence[ChoiceOutput]) -> list[bytes]:
        """The events for new outputs."""
        told = [] if self._opened else self.tell_opening()
        if not self._began:
            self._began = True
            self.response = msgspec.structs.replace(self.response, status="in_progress")
            told.append(self._events.event(InProgress, response=self._now()))
        for _, output in batch:
            told += self._push(output)
        return told

    def tell_end(self) -> list[bytes]:
        """The events after the last output."""
        return [*self._close(), self._last(Incomplete if self._cut else Completed)]

    def tell_failure(self, problem: Problem) -> list[bytes]:
        """The events for an error."""
        error = problem.body.error
        what = {"code": error.code or error.type, "message": error.message, "param": error.param, "error": error}
        told = self._end("failed", "incomplete", error=error_of(problem))
        return [*told, self._events.event(Error, **what), self._last(Failed)]

    def tell_cancelled(self) -> list[bytes]:
        """The events for a response that its client does not want any more."""
        return [*self._end("cancelled", "incomplete"), self._last(Incomplete)]

    def _push(self, output: RequestOutput) -> list[bytes]:
        last = output.finish_reason is not None
        if self._turn is None:  # not before there is output, as a reader must know how the prompt ends
            self._turn = self._new_turn()
        turn = self._turn.push(output.text, last=last)
        told = self._output.push(turn, self._logprobs(output))
        if last:
            self._count(0, output)
            self._cut = output.finish_reason == "length"
        return told

    def _logprobs(self, output: RequestOutput) -> list[ContentLogprob]:
        return chat_logprobs(output.logprobs or (), self._vocabulary).content if self._shows_logprobs else []

    def _close(self) -> list[bytes]:
        if self._cut:
            return self._end("incomplete", "incomplete", usage=self._usage())
        return self._end("completed", "completed", usage=self._usage())

    def _end(self, status: Status, last_item: ItemStatus, **fields: Any) -> list[bytes]:
        """End the response; `last_item` is the status of the item that is not whole yet. Gives the events for that."""
        told = self._output.close(last_item)
        self.response = ended(self.response, status, self._output.items, **fields)
        return told

    def _last(self, kind: type[Event]) -> bytes:
        now = self._now()
        if self._on_end:
            self._on_end(self.response, bytes(now))
        return self._events.event(kind, response=now)

    def _now(self) -> Raw:
        return Raw(msgspec.json.encode(self.response))

    def _usage(self) -> Usage:
        reasoning = round(self._completion_tokens * self._output.thinking_share)
        return Usage(
            input_tokens=self._prompt_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=self._cached_tokens),
            output_tokens=self._completion_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning),
            total_tokens=self._prompt_tokens + self._completion_tokens,
        )
