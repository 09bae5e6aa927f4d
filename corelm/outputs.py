"""What a request gives back."""

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "abort"]


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one request produced since its previous output.

    Outputs that the consumer has not read yet are merged, so joining `text` over all outputs gives the
    whole text however slowly they are read. The last output has a `finish_reason`.
    """

    request_id: str
    text: str
    """New text; may be empty while a character or a possible stop string is incomplete."""
    token_ids: tuple[int, ...]
    """New token ids, the end token included."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended the request, if one did."""
    prompt_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that did not have to be computed because the prefix cache had them."""
    completion_tokens: int
    """Tokens generated so far, over all outputs."""


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
    generation_tokens: int
