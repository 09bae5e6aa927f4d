"""The shape that completions and chat completions share."""

import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from corelm.api import RequestOutput
from corelm_openai.generation.choices import ChoiceOutput, Job
from corelm_openai.generation.replies import Reply
from corelm_openai.generation.vocabulary import Vocabulary
from corelm_openai.http.errors import Problem
from corelm_openai.http.sse import event

DONE = b"data: [DONE]\n\n"
Done = Literal["[DONE]"]
"""The data of that event, the only one that is not JSON."""


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Which prompt tokens cost less."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a whole HTTP request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice, or a piece of one."""

    index: int
    finish_reason: str | None


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply or a chunk of one. Each kind has its own `object` and choices."""

    id: str
    object: str = ""
    created: int
    model: str
    choices: Sequence[Choice]
    usage: Usage | UnsetType | None = UNSET


class EnvelopeReply(Reply):
    """A reply in OpenAI's older shape: one object, or chunks that end with ``[DONE]``."""

    whole: ClassVar[type[Envelope]]
    chunk: ClassVar[type[Envelope]]

    def __init__(self, model: str, job: Job, vocabulary: Vocabulary, *, include_usage: bool) -> None:
        super().__init__(job, vocabulary)
        self._shows_logprobs = job.params.logprobs is not None
        self._created = int(time.time())
        self._model = model
        self._include_usage = include_usage

    @abstractmethod
    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        """A complete choice of a reply that is not streamed."""

    @abstractmethod
    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        """The pieces of a choice that an output stands for; each becomes a chunk."""

    def body(self, outputs: Sequence[RequestOutput]) -> Envelope:
        for index, output in enumerate(outputs):
            self._count(index, output)
        choices = [self.whole_choice(index, output) for index, output in enumerate(outputs)]
        return self._envelope(self.whole, choices, self._usage())

    def events(self, batch: Sequence[ChoiceOutput]) -> bytes:
        return b"".join([event(chunk) for index, output in batch for chunk in self._chunks(index, output)])

    def ending(self) -> bytes:
        if not self._include_usage:
            return DONE
        return event(self._envelope(self.chunk, [], self._usage())) + DONE

    def failure(self, problem: Problem) -> bytes:
        return event(problem.body)

    def _chunks(self, index: int, output: RequestOutput) -> Iterable[Envelope]:
        if output.finish_reason is not None:
            self._count(index, output)
        usage = None if self._include_usage else UNSET
        for piece in self.pieces(index, output):
            yield self._envelope(self.chunk, [piece], usage)

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            total_tokens=self._prompt_tokens + self._completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._cached_tokens),
        )

    def _envelope(self, kind: type[Envelope], choices: Sequence[Choice], usage: Usage | UnsetType | None) -> Envelope:
        return kind(id=self.id, created=self._created, model=self._model, choices=choices, usage=usage)
