"""What a request gives back."""

import struct
from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "abort"]


class TokenLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities at one position, as the model gives them: before temperature, penalties and masks. Finite."""

    token_id: int
    """The token that stands at this position."""
    logprob: float
    """Its natural log-probability."""
    rank: int
    """1 if it is the most probable."""
    top_ids: tuple[int, ...]
    """The most probable tokens, the most probable first; as many as were asked for."""
    top_logprobs: tuple[float, ...]


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice of a request produced since its previous output.

    Outputs that the consumer has not read yet are merged, so joining `text` over all outputs of a choice gives the
    whole text however slowly they are read. The last output of each choice has a `finish_reason`.
    """

    request_id: str
    index: int = 0
    """Which of the request's `SamplingParams.n` choices."""
    text: str
    """New text; may be empty while a character or a possible stop string is incomplete."""
    token_ids: tuple[int, ...]
    """New token ids, the end token included."""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """One for each of `token_ids`, if they were asked for."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """One for each prompt token, None for the first, which follows nothing; in the first output of each choice."""
    cumulative_logprob: float | None = None
    """In the last output: the sum over all tokens, where the engine had to know it (`logprobs`, `best_of`, `beam`)."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended the request, if one did."""
    prompt_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that did not have to be computed because the prefix cache had them."""
    completion_tokens: int
    """Tokens generated so far, over all outputs."""


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """A vector of length 1 that stands for a text."""

    request_id: str
    data: bytes
    """The vector as float32, in little-endian order."""
    prompt_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that did not have to be computed because the prefix cache had them."""

    @property
    def vector(self) -> tuple[float, ...]:
        return struct.unpack(f"<{len(self.data) // 4}f", self.data)


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A consistent snapshot between two steps."""

    running: int
    waiting: int
    total_blocks: int
    free_blocks: int
    finished: dict[str, int]
    """Requests finished so far, by finish reason and ``error``."""
    preemptions: int
    steps: int
    prompt_tokens: int
    cached_tokens: int = 0
    """Those of the prompt tokens that the prefix cache had."""
    generation_tokens: int
