"""``POST /v1/completions``."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec import Raw

from corelm.api import InvalidRequestError, RequestOutput
from corelm_openai.choices import Job
from corelm_openai.decoding import decode
from corelm_openai.echo import Echo
from corelm_openai.logprobs import Position, PromptLogprobs, TextLogprobs, TextLogprobsWriter, prompt_logprobs
from corelm_openai.replies import Choice, Reply
from corelm_openai.requests import GenerationBody, TopCount
from corelm_openai.settings import OpenAISettings
from corelm_openai.vocabulary import Vocabulary

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""

_one_prompt = msgspec.json.Decoder(str | list[int])
_texts = msgspec.json.Decoder(list[str])
_lists_of_ids = msgspec.json.Decoder(list[list[int]])


class CompletionBody(GenerationBody, kw_only=True):
    """The request."""

    unsupported_here: ClassVar[tuple[str, ...]] = ("top_logprobs",)

    prompt: Raw
    best_of: int | None = None
    echo: bool | None = None
    logprobs: TopCount | None = None
    top_logprobs: Raw = Raw()

    def job(self, settings: OpenAISettings, headers: Mapping[str, str], max_model_len: int | None) -> Job:
        """The engine requests this asks for. Raises `InvalidRequestError`."""
        if self.echo and self.truncate_prompt_tokens is not None:
            raise InvalidRequestError(
                "truncate_prompt_tokens does not go together with echo", param="truncate_prompt_tokens"
            )
        prompts = self._prompts(settings.max_prompts)
        if self.truncate_prompt_tokens is None:
            _check_lengths(prompts, max_model_len)
        return self.make_job(
            prompts,
            settings,
            headers,
            names={},
            max_tokens=DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens,
            logprobs=self.logprobs,
            best_of=self.best_of,
            echo=bool(self.echo),
        )

    def _prompts(self, most: int) -> Sequence[str | list[int]]:
        """A string, a list of strings, one list of token ids, or a list of such lists."""
        data = bytes(self.prompt)
        first = re.match(rb'\[\s*(["[])', data)
        if not first:
            prompt = decode(data, _one_prompt, "prompt")
            if prompt == []:
                raise InvalidRequestError("prompt is empty", param="prompt")
            return [prompt]
        texts = decode(data, _texts, "prompt") if first[1] == b'"' else []
        if len(texts) > most or (not texts and data.count(b"[") > most + 1):  # millions of lists would take seconds
            raise InvalidRequestError(f"prompt must hold at most {most} prompts", param="prompt")
        if texts:
            return texts
        return decode(data, _lists_of_ids, "prompt")


def _check_lengths(prompts: Iterable[str | list[int]], most: int | None) -> None:
    for prompt in prompts:
        if not isinstance(prompt, str) and most is not None and len(prompt) > most:
            raise InvalidRequestError(
                f"the prompt has {len(prompt)} tokens, and prompt and output together at most {most}",
                param="prompt",
                code="context_length_exceeded",
            )


body_decoder = msgspec.json.Decoder(CompletionBody)


class TextChoice(Choice, frozen=True, kw_only=True):
    """A choice, or the next piece of its text."""

    text: str


class PromptTextChoice(TextChoice, frozen=True, kw_only=True):
    """A choice that shows its prompt's log-probabilities as well."""

    prompt_logprobs: PromptLogprobs


class CompletionReply(Reply):
    """The reply."""

    id_prefix = "cmpl"
    object_name = chunk_name = "text_completion"

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
        return PromptTextChoice(**msgspec.structs.asdict(choice), prompt_logprobs=self._shown_prompts[number])

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
