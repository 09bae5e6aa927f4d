"""What is highest in the logits of a row, without sorting them."""

import numpy as np

from corelm_torch.arrays import Floats, Ints

GROUP = 64
"""Tokens of which, looking for the highest ones, only the highest is compared at first."""


def best_tokens(logits: Floats) -> Ints:
    """The token [R] with the highest of each row's `logits` [R, vocabulary], of equal ones the lowest id.

    -1 for rows without a finite maximum: with NaN or +inf, or with nothing but -inf.
    """
    best = logits.argmax(axis=1)
    return np.where(np.isfinite(logits[np.arange(len(logits)), best]), best, -1)


def highest(row: Floats, count: int) -> Ints:
    """The tokens, ascending, that are at least as high as the `count`-th highest of `row` [vocabulary], without NaN."""
    maxima = _group_maxima(row)
    if count <= len(maxima):
        # As many groups reach this, so at least as many tokens.
        ids = np.flatnonzero(row >= _nth_highest(maxima, count))
        values = row[ids]
        return ids[values >= _nth_highest(values, count)]
    return np.flatnonzero(row >= _nth_highest(row, min(count, len(row))))


def _group_maxima(row: Floats) -> Floats:
    """The maxima of groups of tokens that lie far apart. The last tokens, which fill no group, are left out.

    Maxima of neighbours would take ten times as long, as they cannot be computed many at a time.
    """
    maxima: Floats = row[: len(row) - len(row) % GROUP].reshape(GROUP, -1).max(axis=0)
    return maxima


def _nth_highest(values: Floats, count: int) -> np.float32:
    """The `count`-th highest of `values`, counted from 1."""
    found: np.float32 = np.partition(values, len(values) - count)[len(values) - count]
    return found
