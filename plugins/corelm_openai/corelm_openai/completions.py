"""``POST /v1/completions``."""

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw

from corelm.api import InvalidRequestError, RequestOutput
from corelm_openai.choices import Job
from corelm_openai.decoding import decode
from corelm_openai.replies import Choice, Reply
from corelm_openai.requests import GenerationBody
from corelm_openai.settings import OpenAISettings

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""

_one_prompt = msgspec.json.Decoder(str | list[int])
_texts = msgspec.json.Decoder(list[str])
_lists_of_ids = msgspec.json.Decoder(list[list[int]])


class CompletionBody(GenerationBody, kw_only=True):
    """The request."""

    prompt: Raw

    def job(self, settings: OpenAISettings, max_model_len: int | None) -> Job:
        """The engine requests this asks for. Raises `InvalidRequestError`."""
        if bytes(self.logprobs) == b"0":
            raise InvalidRequestError("logprobs is not supported", param="logprobs")
        max_tokens = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        prompts = self._prompts(settings.max_prompts)
        for prompt in prompts:
            if not isinstance(prompt, str) and max_model_len is not None and len(prompt) > max_model_len:
                raise InvalidRequestError(
                    f"the prompt has {len(prompt)} tokens, and prompt and output together at most {max_model_len}",
                    param="prompt",
                    code="context_length_exceeded",
                )
        return Job(
            prompts=prompts,
            params=self.sampling(max_n=settings.max_n, max_tokens=max_tokens),
            priority=self.priority or 0,
            tenant=self.user,
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
