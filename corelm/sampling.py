"""Per-request generation parameters, validated once, here."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from corelm.limits import check_float, check_int, check_limits, refuse

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024
MAX_BAD_WORDS = 256
MAX_BAD_WORD_LENGTH = 64
MAX_TOKEN_IDS = 4096
"""Most entries of `logit_bias` and `allowed_token_ids`."""
MAX_LOGITS_PROCESSORS = 16
MAX_LOGPROBS = 64
MAX_CHOICES = 128
MAX_BEAM_WIDTH = 16
MAX_GRAMMAR_LENGTH = 2**18
SEED_RANGE = range(-(2**63), 2**63)
MOST = 2**31 - 1
"""Largest number where there is no reason for another limit."""
GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""


def _check_texts(param: str, value: Any, most: int, longest: int) -> None:
    if not isinstance(value, tuple | list) or len(value) > most:
        raise refuse(param, f"must be a list of at most {most} strings")
    for text in value:
        if not isinstance(text, str):
            raise refuse(param, f"must hold strings, not {type(text).__name__}")
        if not 0 < len(text) <= longest:
            raise refuse(param, f"strings must have 1 to {longest} characters")


def _check_token_ids(param: str, value: Any, most: int) -> None:
    if not isinstance(value, tuple | list) or len(value) > most:
        raise refuse(param, f"must be a list of at most {most} token ids")
    for token in value:
        check_int(param, token, 0, MOST)


class BeamSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Look for the most probable output among `width` beginnings at a time, as transformers does."""

    width: Annotated[int, Meta(ge=1, le=MAX_BEAM_WIDTH)]
    length_penalty: Annotated[float, Meta(ge=-10.0, le=10.0)] = 1.0
    """Scores are log-probabilities divided by the length to this power: above 0 favours long outputs."""
    early_stopping: bool | Literal["never"] = False
    """True ends with the first `width` finished outputs, False when a better one is unlikely, ``never`` when none is
    possible."""

    def __post_init__(self) -> None:
        check_limits(self, "beam.")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise refuse("beam.early_stopping", 'must be true, false or "never"')


class StructuredOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What an output must look like. Needs an engine with a grammar compiler, which says what it makes of the
    source."""

    kind: Literal["json_schema", "regex", "choice", "grammar"]
    source: str
    """At most 2**18 characters: a JSON Schema as JSON, a regular expression, a JSON list of strings of which the output
    is one, or a grammar in the compiler's language."""

    def __post_init__(self) -> None:
        if self.kind not in ("json_schema", "regex", "choice", "grammar"):
            raise refuse("structured_output", f"cannot be of the kind {self.kind!r:.50}")
        if not isinstance(self.source, str) or not 0 < len(self.source) <= MAX_GRAMMAR_LENGTH:
            raise refuse("structured_output", f"must have a source of 1 to {MAX_GRAMMAR_LENGTH} characters")


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to pick tokens and when to stop.

    Raises `InvalidRequestError`, whose `param` names the field, on any value out of range.
    """

    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    """Choices to return. They share the prompt; choice i draws with seed + i."""
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    """Generate this many and return the `n` with the highest mean log-probability. Not less than `n`."""
    beam: BeamSearch | None = None
    """Search instead of sampling; returns the `n` best outputs at the end."""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    """Below 1e-5 decoding is greedy: the most probable token, ties to the lowest id."""
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Nucleus: keep the smallest set of tokens whose probability reaches this."""
    top_k: Annotated[int, Meta(ge=-1, le=MOST)] = -1
    """Keep only this many most probable tokens; -1 or 0 keeps all."""
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    """Drop tokens less probable than this fraction of the most probable one."""
    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    """Subtracted from the logits of tokens that the output contains."""
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    """Subtracted once for each time that the output contains the token."""
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] = 1.0
    """Positive logits of tokens in prompt or output are divided by it, negative ones multiplied."""
    logit_bias: Mapping[int, float] = {}
    """-100 to 100, added to the logits of token ids."""
    allowed_token_ids: tuple[int, ...] | None = None
    """Sample nothing but these."""
    bad_words: tuple[str, ...] = ()
    """Texts of at most 64 characters that may not be generated, at the beginning of a word or within one."""
    logits_processors: Mapping[str, Any] = {}
    """Logits processors to use, at most 16 of those the engine has, by name, each with its argument: what JSON can say.
    They follow masks and penalties, in the order of the engine's setting."""
    structured_output: StructuredOutput | None = None
    """Sample nothing but what can become such an output, which then ends by itself."""
    seed: Annotated[int, Meta(ge=SEED_RANGE.start, le=SEED_RANGE.stop - 1)] | None = None
    """64-bit seed. With one, the tokens depend on nothing but the request itself."""
    max_tokens: Annotated[int, Meta(ge=0, le=MOST)] | None = None
    """At most this many new tokens; None means as many as the context holds. 0 only reads the prompt."""
    min_tokens: Annotated[int, Meta(ge=0, le=MOST)] = 0
    """Do not end before there are this many new tokens."""
    stop: tuple[str, ...] = ()
    """Generation ends before the first of these strings; the string itself is not returned."""
    stop_token_ids: tuple[int, ...] = ()
    """Generation ends at any of these tokens, besides the model's own end tokens."""
    include_stop_str_in_output: bool = False
    """Return the stop string, or the text of the token that ended the output, as well. Special tokens show only without
    `skip_special_tokens`."""
    ignore_eos: bool = False
    """Do not end at the model's end tokens (benchmarks)."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    spaces_between_special_tokens: bool = True
    """Where a tokenizer puts spaces between special tokens that are shown, keep them."""
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """Report the log-probability of each new token, and those of this many most probable ones."""
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """The same for the tokens of the prompt."""
    truncate_prompt_tokens: int | None = None
    """Keep only this many tokens of the prompt, its last ones; -1 keeps what the context holds."""

    def __post_init__(self) -> None:
        check_limits(self)
        if self.best_of is not None and self.best_of < self.n:
            raise refuse("best_of", f"must be at least n, which is {self.n}")
        self._check_edits()
        self._check_ending()
        if self.truncate_prompt_tokens is not None and self.truncate_prompt_tokens != -1:
            check_int("truncate_prompt_tokens", self.truncate_prompt_tokens, 1, MOST)
        if self.beam is not None:
            self._check_beam(self.beam)

    def _check_edits(self) -> None:
        if not isinstance(self.logit_bias, Mapping) or len(self.logit_bias) > MAX_TOKEN_IDS:
            raise refuse("logit_bias", f"must map at most {MAX_TOKEN_IDS} token ids to numbers")
        for token, bias in self.logit_bias.items():
            check_int("logit_bias", token, 0, MOST)
            check_float("logit_bias", bias, -100.0, 100.0)
        if self.allowed_token_ids is not None:
            _check_token_ids("allowed_token_ids", self.allowed_token_ids, MAX_TOKEN_IDS)
            if not self.allowed_token_ids:
                raise refuse("allowed_token_ids", "must not be empty")
        _check_texts("bad_words", self.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_LENGTH)
        processors = self.logits_processors
        if not isinstance(processors, Mapping) or len(processors) > MAX_LOGITS_PROCESSORS:
            raise refuse("logits_processors", f"must map at most {MAX_LOGITS_PROCESSORS} names to arguments")

    def _check_ending(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise refuse("min_tokens", f"must be at most max_tokens, which is {self.max_tokens}")
        _check_texts("stop", self.stop, MAX_STOP_STRINGS, MAX_STOP_LENGTH)
        _check_token_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_STRINGS)
        for name in ("min_tokens", "ignore_eos"):
            if getattr(self, name) and self.structured_output is not None:
                raise refuse(name, "does not go together with structured_output, which says itself when it may end")

    def _check_beam(self, beam: BeamSearch) -> None:
        if self.n > beam.width:
            raise refuse("n", f"must be at most beam.width, which is {beam.width}")
        for name in _NOT_WITH_BEAM:
            if getattr(self, name) != _FIELD_DEFAULTS[name]:
                raise refuse(name, "does not go together with beam search")
        if self.max_tokens == 0:
            raise refuse("max_tokens", "must be at least 1 with beam search")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def num_sequences(self) -> int:
        """Outputs that are generated for the `n` that are returned."""
        return self.n if self.best_of is None else self.best_of


_NOT_WITH_BEAM = (
    "best_of",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "logits_processors",
    "structured_output",
    "min_tokens",
    "stop",
    "logprobs",
)
_FIELD_DEFAULTS = {
    **{field.name: field.default for field in msgspec.structs.fields(SamplingParams)},
    "logit_bias": {},
    "logits_processors": {},
}
