"""The reply of ``/v1/completions``."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from corelm.api import RequestOutput
from corelm_openai.generation.choices import Job
from corelm_openai.generation.echo import Echo
from corelm_openai.generation.envelopes import Choice, Envelope, EnvelopeReply
from corelm_openai.generation.logprobs import (
    Position,
    PromptLogprobs,
    TextLogprobs,
    TextLogprobsWriter,
    prompt_logprobs,
)
from corelm_openai.generation.vocabulary import Vocabulary


class TextChoice(Choice, frozen=True, kw_only=True):
    """A choice, or the next piece of its text."""

    text: str
    logprobs: TextLogprobs | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(Envelope, frozen=True, kw_only=True):
    """A whole reply or a chunk of one."""

    object: Literal["text_completion"] = "text_completion"
    choices: Sequence[TextChoice]


class CompletionReply(EnvelopeReply):
    """The reply."""

    id_prefix = "cmpl-"
    whole = chunk = Completion

    def __init__(self, model: str, job: Job, vocabulary: Vocabulary, *, include_usage: bool) -> None:
        super().__init__(model, job, vocabulary, include_usage=include_usage)
        self._echo = Echo(job.prompts, vocabulary)
        self._to_echo = set(range(len(job.prompts) * job.params.n)) if job.echo else set()
        """Choices that have not begun, if each begins with its prompt."""
        top = job.params.logprobs or 0
        self._writers: defaultdict[int, TextLogprobsWriter] = defaultdict(lambda: TextLogprobsWriter(vocabulary, top))
        """One for each choice."""
        self._shown_prompts: dict[int, PromptLogprobs] = {}
        """The log-probabilities of each prompt, which its choices share."""

    async def prepare(self, outputs: Iterable[RequestOutput]) -> None:
        await super().prepare(outputs)
        if self._to_echo:
            await self._echo.prepare()

    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        choice = self._choice(index, output)
        top = self._job.prompt_logprobs
        if top is None:
            return choice
        number = index // self._job.params.n
        if number not in self._shown_prompts:
            self._shown_prompts[number] = prompt_logprobs(output.prompt_logprobs or (), top, self._vocabulary)
        return msgspec.structs.replace(choice, prompt_logprobs=self._shown_prompts[number])

    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        if output.text or output.finish_reason or output.logprobs or index in self._to_echo:
            yield self._choice(index, output)

    def _choice(self, index: int, output: RequestOutput) -> TextChoice:
        text, logprobs, echo = output.text, None, index in self._to_echo
        if echo:
            self._to_echo.remove(index)
            text = self._echo.text(index // self._job.params.n) + text
        if self._shows_logprobs:
            logprobs = self._logprobs(index, output, echo=echo)
        return TextChoice(index=index, text=text, logprobs=logprobs, finish_reason=output.finish_reason)

    def _logprobs(self, index: int, output: RequestOutput, *, echo: bool) -> TextLogprobs:
        positions: list[Position] = []
        if echo:
            positions += self._echo.positions(index // self._job.params.n, output.prompt_logprobs or ())
        positions += [(self._vocabulary[entry.token_id], entry) for entry in output.logprobs or ()]
        return self._writers[index].write(positions)
