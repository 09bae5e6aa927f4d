"""Log-probabilities: what the model gives, before temperature, penalties and masks."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812

from corelm.api import TokenLogprobs
from corelm_torch.arrays import Ints

ROWS = 64
"""Rows that are computed at a time, which bounds the memory."""
LEAST = -9999.0
"""Reported for anything less probable, so that all values are finite."""
GROUP = 64
"""Neighbouring tokens of which, looking for the most probable ones, only the best is compared at first."""


def token_logprobs(logits: torch.Tensor, token_ids: Ints, top: Ints) -> Iterator[TokenLogprobs | None]:
    """For each row of `logits` [R, vocabulary], in float32: those of ``token_ids[row]`` and the `top[row]` best tokens.

    None for rows with NaN or infinite logits, which are no distribution. A row's bits do not depend on the others.
    """
    for first in range(0, len(logits), ROWS):
        part = slice(first, first + ROWS)
        yield from _of_rows(logits[part], torch.from_numpy(token_ids[part]).to(logits.device), top[part].tolist())


def _of_rows(logits: torch.Tensor, token_ids: torch.Tensor, top: list[int]) -> Iterator[TokenLogprobs | None]:
    chosen = token_ids[:, None]
    # Sums of floats are several times faster than sums of booleans, and exact below 2**24.
    better = torch.gt(logits, logits.gather(1, chosen), out=torch.empty_like(logits)).sum(dim=-1)
    ids = torch.cat([chosen, top_ids(logits, max(top))], dim=1)
    values = torch.log_softmax(logits, dim=-1).gather(1, ids).clamp_(min=LEAST)
    for (token, *best), (logprob, *best_logprobs), ahead, count in zip(
        ids.tolist(), values.tolist(), better.tolist(), top, strict=True
    ):
        if math.isnan(logprob):
            yield None
        else:
            yield TokenLogprobs(
                token_id=token,
                logprob=logprob,
                rank=1 + int(ahead),
                top_ids=tuple(best[:count]),
                top_logprobs=tuple(best_logprobs[:count]),
            )


def top_ids(logits: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` tokens with the highest logits, the highest first and of equal ones the lowest id: [R, count].

    They lie in the `count` groups that are best by their maxima, so only these are sorted.
    """
    vocabulary = logits.shape[1]
    groups = F.pad(logits, (0, -vocabulary % GROUP), value=-torch.inf).view(len(logits), -1, GROUP)
    best = groups.amax(dim=-1).sort(dim=-1, descending=True, stable=True).indices[:, :count].sort(dim=-1).values
    candidates = groups.gather(1, best[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    places = candidates.sort(dim=-1, descending=True, stable=True).indices[:, : min(count, vocabulary)]
    return best.gather(1, places // GROUP) * GROUP + places % GROUP
