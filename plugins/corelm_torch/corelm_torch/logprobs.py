"""Log-probabilities: what the model gives, before temperature, penalties and masks."""

import math
from collections.abc import Iterator

import numpy as np

from corelm.api import TokenLogprobs
from corelm_torch.arrays import Floats, Ints
from corelm_torch.selection import highest

LEAST = -9999.0
"""Reported for anything less probable, so that all values are finite."""


def token_logprobs(logits: Floats, token_ids: Ints, top: Ints) -> Iterator[TokenLogprobs | None]:
    """For each row of `logits` [R, vocabulary]: those of ``token_ids[row]`` and of the `top[row]` best tokens.

    None for rows with NaN or infinite logits, which are no distribution. A row's bits do not depend on the others.
    """
    return map(_of_row, logits, token_ids.tolist(), top.tolist())


def _of_row(logits: Floats, token_id: int, count: int) -> TokenLogprobs | None:
    peak, chosen = logits.max(), logits[token_id]
    if not np.isfinite(peak):
        return None
    weights = logits - peak
    best = top_ids(logits, count) if count else np.zeros(0, np.int64)
    return from_sums(
        token_id,
        normaliser=float(peak) + math.log(np.exp(weights, out=weights).sum()),
        chosen=float(chosen),
        higher=int(np.count_nonzero(logits > chosen)),
        top_ids=best.tolist(),
        top_logits=logits[best].tolist(),
    )


def from_sums(
    token_id: int, *, normaliser: float, chosen: float, higher: int, top_ids: list[int], top_logits: list[float]
) -> TokenLogprobs:
    """Log-probabilities from logits, of which `chosen` is the token's and as many as `higher` are higher.

    The `normaliser` is the logarithm of the sum of their exponentials.
    """
    return TokenLogprobs(
        token_id=token_id,
        logprob=max(chosen - normaliser, LEAST),
        rank=1 + higher,
        top_ids=tuple(top_ids),
        top_logprobs=tuple(max(logit - normaliser, LEAST) for logit in top_logits),
    )


def top_ids(logits: Floats, count: int) -> Ints:
    """The `count` tokens with the highest `logits` [vocabulary], the highest first and of equal ones the lowest id."""
    ids = highest(logits, count)
    return ids[np.argsort(-logits[ids], kind="stable")[:count]]
