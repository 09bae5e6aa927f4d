"""What generating endpoints answer with."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from corelm.api import RequestOutput
from corelm_openai.generation.choices import ChoiceOutput, Job
from corelm_openai.generation.logprobs import named_tokens
from corelm_openai.generation.vocabulary import Vocabulary
from corelm_openai.http.errors import Problem


class Reply(ABC):
    """Turns the outputs of one HTTP request into a body, or into server-sent events."""

    id_prefix: ClassVar[str]

    def __init__(self, job: Job, vocabulary: Vocabulary) -> None:
        self.id = f"{self.id_prefix}{uuid4().hex}"
        self.shows_tokens = job.shows_tokens
        """Whether `prepare` is needed."""
        self._job = job
        self._vocabulary = vocabulary
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0

    @property
    def tokens(self) -> tuple[int, int]:
        """The tokens of prompts and outputs, as far as they were counted."""
        return self._prompt_tokens, self._completion_tokens

    async def prepare(self, outputs: Iterable[RequestOutput]) -> None:
        """Get to know the tokens that `body` or `events` will show for these outputs."""
        await self._vocabulary.learn(named_tokens(outputs))

    @abstractmethod
    def body(self, outputs: Sequence[RequestOutput]) -> Any:
        """The whole reply, for JSON, from the complete output of each choice in order."""

    @abstractmethod
    def events(self, batch: Sequence[ChoiceOutput]) -> bytes:
        """The events for new outputs."""

    @abstractmethod
    def ending(self) -> bytes:
        """The events after the last output."""

    @abstractmethod
    def failure(self, problem: Problem) -> bytes:
        """The last event of a stream that failed."""

    def _count(self, index: int, last: RequestOutput) -> None:
        """Count the tokens of a choice that has ended. Each prompt counts once, however many choices it has."""
        self._completion_tokens += last.completion_tokens
        if index % self._job.params.n == 0:
            self._prompt_tokens += last.prompt_tokens
            self._cached_tokens += last.cached_tokens
