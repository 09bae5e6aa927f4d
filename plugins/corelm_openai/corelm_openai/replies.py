"""What both generating endpoints answer with, in OpenAI's shapes."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType

from corelm.api import RequestOutput
from corelm_openai.choices import Job
from corelm_openai.logprobs import ChatLogprobs, TextLogprobs, named_tokens
from corelm_openai.vocabulary import Vocabulary


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Which prompt tokens cost less."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a whole HTTP request. Each prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice, or a piece of one."""

    index: int
    logprobs: ChatLogprobs | TextLogprobs | None = None
    finish_reason: str | None


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply or a chunk of one."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[Choice]
    usage: Usage | UnsetType | None = UNSET


class Reply(ABC):
    """Turns the outputs of one HTTP request into a body or into chunks."""

    id_prefix: ClassVar[str]
    object_name: ClassVar[str]
    chunk_name: ClassVar[str]

    def __init__(self, model: str, job: Job, vocabulary: Vocabulary, *, include_usage: bool) -> None:
        self.id = f"{self.id_prefix}-{uuid4().hex}"
        self.shows_tokens = job.shows_tokens
        """Whether `prepare` is needed."""
        self._shows_logprobs = job.params.logprobs is not None
        self._created = int(time.time())
        self._model = model
        self._job = job
        self._vocabulary = vocabulary
        self._include_usage = include_usage
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0

    async def prepare(self, outputs: Iterable[RequestOutput]) -> None:
        """Get to know the tokens that `body` or `chunks` will show for these outputs."""
        await self._vocabulary.learn(named_tokens(outputs))

    @abstractmethod
    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        """A complete choice of a reply that is not streamed."""

    @abstractmethod
    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        """The pieces of a choice that an output stands for; each becomes a chunk."""

    def body(self, outputs: Sequence[RequestOutput]) -> Envelope:
        """The whole reply, from the complete output of each choice in order."""
        for index, output in enumerate(outputs):
            self._count(index, output)
        choices = [self.whole_choice(index, output) for index, output in enumerate(outputs)]
        return self._envelope(self.object_name, choices, self._usage())

    def chunks(self, index: int, output: RequestOutput) -> list[Envelope]:
        """The chunks for an output of the choice `index`."""
        if output.finish_reason is not None:
            self._count(index, output)
        usage = None if self._include_usage else UNSET
        return [self._envelope(self.chunk_name, [piece], usage) for piece in self.pieces(index, output)]

    def usage_chunk(self) -> Envelope | None:
        """The last chunk, if the client asked for the usage."""
        return self._envelope(self.chunk_name, [], self._usage()) if self._include_usage else None

    def _count(self, index: int, last: RequestOutput) -> None:
        self._completion_tokens += last.completion_tokens
        if index % self._job.params.n == 0:
            self._prompt_tokens += last.prompt_tokens
            self._cached_tokens += last.cached_tokens

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            total_tokens=self._prompt_tokens + self._completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._cached_tokens),
        )

    def _envelope(self, name: str, choices: Sequence[Choice], usage: Usage | UnsetType | None) -> Envelope:
        return Envelope(id=self.id, object=name, created=self._created, model=self._model, choices=choices, usage=usage)
