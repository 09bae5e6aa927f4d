"""``POST /v1/completions``."""

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from corelm.api import InvalidRequestError, Prompt, RequestOutput
from corelm_openai.choices import Job
from corelm_openai.replies import Choice, Reply
from corelm_openai.requests import GenerationBody
from corelm_openai.settings import OpenAISettings

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""


class CompletionBody(GenerationBody, kw_only=True):
    """The request."""

    prompt: str | list[str | int | list[int]]

    def job(self, settings: OpenAISettings) -> Job:
        """The engine requests this asks for. Raises `InvalidRequestError`."""
        if self.logprobs == 0 and self.logprobs is not False:
            raise InvalidRequestError("logprobs is not supported", param="logprobs")
        max_tokens = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        return Job(
            prompts=self._prompts(settings.max_prompts),
            params=self.sampling(max_n=settings.max_n, max_tokens=max_tokens),
            priority=self.priority or 0,
            tenant=self.user,
        )

    def _prompts(self, most: int) -> Sequence[Prompt]:
        """A string, a list of strings, one list of token ids, or a list of such lists."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        kinds = {type(item) for item in self.prompt}
        if not kinds:
            raise InvalidRequestError("prompt is empty", param="prompt")
        if len(kinds) > 1:
            raise InvalidRequestError("prompt must not mix strings, token ids and lists", param="prompt")
        if kinds == {int}:
            return [cast("list[int]", self.prompt)]
        if len(self.prompt) > most:
            raise InvalidRequestError(f"prompt must hold at most {most} prompts", param="prompt")
        return cast("list[str] | list[list[int]]", self.prompt)


body_decoder = msgspec.json.Decoder(CompletionBody)


class TextChoice(Choice, frozen=True, kw_only=True):
    """A choice, or the next piece of its text."""

    text: str


class CompletionReply(Reply):
    """The reply."""

    id_prefix = "cmpl"
    object_name = chunk_name = "text_completion"

    def whole_choice(self, index: int, output: RequestOutput) -> Choice:
        return TextChoice(index=index, text=output.text, finish_reason=output.finish_reason)

    def pieces(self, index: int, output: RequestOutput) -> Iterable[Choice]:
        if output.text or output.finish_reason:
            yield TextChoice(index=index, text=output.text, finish_reason=output.finish_reason)
