"""What both generating endpoints take: the fields, and what they ask of the engine.

Fields that are not listed here are ignored, as are those that cannot change the text (``metadata``, ``store``,
``service_tier``). ``null`` always means the default.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Raw

from corelm.api import BeamSearch, InvalidRequestError, Prompt, SamplingParams
from corelm_openai.generation.choices import Job
from corelm_openai.generation.structured import Form, StructuredBody
from corelm_openai.http.decoding import decode_field
from corelm_openai.http.errors import renaming
from corelm_openai.options import request_options
from corelm_openai.settings import OpenAISettings

TopCount = Annotated[int, msgspec.Meta(ge=0, le=20)]
"""How many of the most probable tokens to show. For OpenAI's clients 20 is the most, and enough for the others."""
MAX_TOKEN_IDS_BYTES = 2**18
"""More than as many token ids as corelm takes need, with a number and spaces for each."""
MAX_WORDS_BYTES = 2**22
MAX_PROCESSORS_BYTES = 2**14

_biases = msgspec.json.Decoder(dict[int, float] | None)
_token_ids = msgspec.json.Decoder(list[int] | None)
_processors = msgspec.json.Decoder(dict[str, Any] | None)
_words = msgspec.json.Decoder(list[str] | None)

_PASSED_ON = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "min_tokens",
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
)


class StreamOptions(msgspec.Struct, kw_only=True):
    """Options of a streamed reply."""

    include_usage: bool | None = None


class GenerationBody(StructuredBody, kw_only=True):
    """Fields of both endpoints."""

    model: str
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[Raw, _biases] = Raw()
    allowed_token_ids: Annotated[Raw, _token_ids] = Raw()
    bad_words: Annotated[Raw, _words] = Raw()
    logits_processors: Annotated[Raw, _processors] = Raw()
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    ignore_eos: bool | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: TopCount | None = None
    n: int | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    priority: int | None = None
    deadline_s: float | None = None
    cache_salt: str | None = None
    prefix_cache: bool | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def make_job(
        self,
        prompts: Sequence[Prompt],
        settings: OpenAISettings,
        headers: Mapping[str, str],
        *,
        names: Mapping[str, str],
        max_tokens: int | None,
        logprobs: int | None,
        form: Form | None,
        best_of: int | None = None,
        echo: bool = False,
    ) -> Job:
        """What this asks for, checked. `names` are those of `Job`, as far as the endpoint decides them."""
        n = 1 if self.n is None else self.n
        for name, value in (("n", n), ("best_of", n if best_of is None else best_of)):
            if not 1 <= value <= settings.max_n:
                raise InvalidRequestError(f"{name} must be between 1 and {settings.max_n}", param=name)
        self._check_stream(n, best_of)
        self.refuse_unsupported(n)
        names = {**names, **self._beam_names(best_of), **({"structured_output": form.param} if form else {})}
        with renaming(names):
            params = SamplingParams(
                n=n,
                **self._search(n, best_of),
                max_tokens=max_tokens,
                stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
                stop_token_ids=tuple(self.stop_token_ids or ()),
                logprobs=logprobs,
                structured_output=form and form.output,
                prompt_logprobs=_larger(self.prompt_logprobs, logprobs if echo else None),
                **self._token_choice(),
                **self._given(_PASSED_ON),
            )
        return Job(
            prompts=prompts,
            params=params,
            options=request_options(self, settings, headers),
            names=names,
            echo=echo,
            prompt_logprobs=self.prompt_logprobs,
        )

    def _check_stream(self, n: int, best_of: int | None) -> None:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options is only allowed when stream is true", param="stream_options")
        if self.stream and self.prompt_logprobs is not None:
            raise InvalidRequestError("prompt_logprobs is not allowed when stream is true", param="prompt_logprobs")
        if self.stream and best_of not in (None, n):
            raise InvalidRequestError("best_of must be equal to n when stream is true", param="best_of")

    def _search(self, n: int, best_of: int | None) -> dict[str, Any]:
        """How many outputs are tried for the `n` that are returned: with beam search, `best_of` is the width."""
        if not self.use_beam_search:
            for name, default in (("length_penalty", 1.0), ("early_stopping", False)):
                if getattr(self, name) not in (None, default):
                    raise InvalidRequestError(f"{name} is only allowed with use_beam_search", param=name)
            return {"best_of": None if best_of == n else best_of}
        width = n if best_of is None else best_of
        if width < n:
            raise InvalidRequestError(f"best_of must be at least n, which is {n}", param="best_of")
        return {"beam": BeamSearch(width=width, **self._given(("length_penalty", "early_stopping")))}

    def _token_choice(self) -> dict[str, Any]:
        """The fields that say which tokens may come."""
        bias = decode_field(self.logit_bias, _biases, "logit_bias", MAX_TOKEN_IDS_BYTES)
        allowed = decode_field(self.allowed_token_ids, _token_ids, "allowed_token_ids", MAX_TOKEN_IDS_BYTES)
        bad_words = decode_field(self.bad_words, _words, "bad_words", MAX_WORDS_BYTES)
        processors = decode_field(self.logits_processors, _processors, "logits_processors", MAX_PROCESSORS_BYTES)
        return {
            "logit_bias": bias or {},
            "logits_processors": processors or {},
            "allowed_token_ids": None if allowed is None else tuple(allowed),
            "bad_words": tuple(bad_words or ()),
        }

    def _beam_names(self, best_of: int | None) -> dict[str, str]:
        return {
            "beam": "use_beam_search",
            "beam.width": "n" if best_of is None else "best_of",
            "beam.length_penalty": "length_penalty",
            "beam.early_stopping": "early_stopping",
        }

    def _given(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _larger(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)
