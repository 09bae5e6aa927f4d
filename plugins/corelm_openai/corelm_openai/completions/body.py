"""The request of ``/v1/completions``."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Raw

from corelm.api import InvalidRequestError
from corelm_openai.generation.body import GenerationBody, TopCount
from corelm_openai.generation.choices import Job
from corelm_openai.prompts import Prompts, read_prompts
from corelm_openai.service import Service

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""


class CompletionBody(GenerationBody, kw_only=True):
    """The request."""

    unsupported_here: ClassVar[tuple[str, ...]] = ("tools", "top_logprobs")

    prompt: Prompts
    best_of: int | None = None
    echo: bool | None = None
    logprobs: TopCount | None = None
    tools: Raw = Raw()
    top_logprobs: Raw = Raw()

    def job(self, service: Service, headers: Mapping[str, str]) -> Job:
        """The engine requests this asks for. Raises `InvalidRequestError`."""
        if self.echo and self.truncate_prompt_tokens is not None:
            raise InvalidRequestError(
                "truncate_prompt_tokens does not go together with echo", param="truncate_prompt_tokens"
            )
        prompts = read_prompts(self.prompt, "prompt", service.settings.max_prompts)
        if self.truncate_prompt_tokens is None:
            _check_lengths(prompts, service.engine.model.max_model_len)
        return self.make_job(
            prompts,
            service.settings,
            headers,
            names={},
            max_tokens=DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens,
            logprobs=self.logprobs,
            form=self.form(),
            best_of=self.best_of,
            echo=bool(self.echo),
        )


def _check_lengths(prompts: Iterable[str | list[int]], most: int | None) -> None:
    for prompt in prompts:
        if not isinstance(prompt, str) and most is not None and len(prompt) > most:
            raise InvalidRequestError(
                f"the prompt has {len(prompt)} tokens, and prompt and output together at most {most}",
                param="prompt",
                code="context_length_exceeded",
            )
