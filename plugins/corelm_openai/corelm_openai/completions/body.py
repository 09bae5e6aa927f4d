"""The request of ``/v1/completions``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec import Raw

from corelm.api import InvalidRequestError
from corelm_openai.generation.body import GenerationBody, TopCount
from corelm_openai.generation.choices import Job
from corelm_openai.http.decoding import decode
from corelm_openai.service import Service

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

    def job(self, service: Service, headers: Mapping[str, str]) -> Job:
        """The engine requests this asks for. Raises `InvalidRequestError`."""
        if self.echo and self.truncate_prompt_tokens is not None:
            raise InvalidRequestError(
                "truncate_prompt_tokens does not go together with echo", param="truncate_prompt_tokens"
            )
        prompts = self._prompts(service.settings.max_prompts)
        if self.truncate_prompt_tokens is None:
            _check_lengths(prompts, service.engine.model.max_model_len)
        return self.make_job(
            prompts,
            service.settings,
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
