"""Sampling: one call for all rows, each with parameters of its own.

The order is that of transformers and vLLM: temperature, then top_k, then top_p and min_p on what top_k left. Tokens
exactly as probable as the last one that top_k or top_p keeps are kept too, so the kept set does not depend on how a
sort breaks ties. A draw depends on nothing but its row's logits, the seed and the number of tokens before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corelm.api import SamplingParams
from corelm_torch.arrays import Floats, Ints
from corelm_torch.selection import best_tokens, highest

LIKELY = 4096
"""Tokens that, for top_p, are at first taken to share all of the probability that may be left out."""
GROUP = 256
"""Neighbouring tokens whose probabilities are summed before one of them is looked for."""


class Draw(NamedTuple):
    """How to draw one row's token."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    uniform: float
    """The random number, in [0, 1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingRows:
    """Sampling parameters as arrays [R]."""

    temperature: npt.NDArray[np.float32]
    """0 where decoding is greedy."""
    top_k: Ints
    """0 keeps all."""
    top_p: npt.NDArray[np.float64]
    min_p: npt.NDArray[np.float64]
    seed: npt.NDArray[np.uint64]
    index: npt.NDArray[np.uint64]
    """Output tokens before the one to be sampled."""
    logprobs: Ints
    """Most probable tokens whose log-probabilities are to be reported with that of the sampled one; -1 for nothing."""

    @classmethod
    def zeros(cls, rows: int) -> "SamplingRows":
        """Room for `rows` rows."""
        return cls(
            temperature=np.zeros(rows, np.float32),
            top_k=np.zeros(rows, np.int64),
            top_p=np.zeros(rows),
            min_p=np.zeros(rows),
            seed=np.zeros(rows, np.uint64),
            index=np.zeros(rows, np.uint64),
            logprobs=np.full(rows, -1),
        )

    def set(self, row: int, params: SamplingParams) -> None:
        """Put the parameters of one request, whose seed is set, into `row`."""
        self.temperature[row] = 0.0 if params.greedy or params.top_k == 1 else params.temperature
        self.top_k[row] = max(params.top_k, 0)
        self.top_p[row] = params.top_p
        self.min_p[row] = params.min_p
        self.seed[row] = (params.seed or 0) % 2**64
        self.logprobs[row] = -1 if params.logprobs is None else params.logprobs

    def take(self, rows: Ints, index: Ints | None = None) -> "SamplingRows":
        """The parameters of `rows`, with the given output indices or their own."""
        taken = {field.name: getattr(self, field.name)[rows] for field in fields(self)}
        if index is not None:
            taken["index"] = index.astype(np.uint64)
        return SamplingRows(**taken)

    def draws(self) -> Iterator[Draw]:
        """The rows one by one, each with its random number."""
        numbers = uniform(self.seed, self.index)
        columns = (self.temperature, self.top_k, self.top_p, self.min_p, numbers)
        return map(Draw, *(column.tolist() for column in columns))


def sample(logits: Floats, rows: SamplingRows) -> Ints:
    """Token ids [R] for `logits` [R, vocabulary]; -1 for rows without a finite maximum."""
    token_ids = best_tokens(logits)
    drawn = np.flatnonzero((rows.temperature > 0) & (token_ids >= 0))
    if len(drawn):
        # Logits far below the highest may become -inf at a low temperature.
        with np.errstate(over="ignore"):
            for row, draw in zip(drawn.tolist(), rows.take(drawn).draws(), strict=True):
                token_ids[row] = _draw(logits[row], int(token_ids[row]), draw)
    return token_ids


def uniform(seed: npt.NDArray[np.uint64], index: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) with 48 random bits, each a hash of its seed and index."""
    # 48 bits, so that a product with the total probability stays below it in double precision.
    return (_mix(_mix(seed) ^ index) >> np.uint64(16)).astype(np.float64) * 2.0**-48


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _draw(logits: Floats, best: int, draw: Draw) -> int:
    """A token drawn by `logits` [vocabulary], of which that of `best` is the highest."""
    ids = highest(logits, draw.top_k) if 0 < draw.top_k < len(logits) else None
    weights = (logits if ids is None else logits[ids]) - logits[best]
    weights *= np.float32(1 / draw.temperature)
    np.exp(weights, out=weights)
    least = draw.min_p
    if draw.top_p < 1:
        least = max(least, _least_of_nucleus(weights, draw.top_p))
    if least > 0:
        kept = np.flatnonzero(weights >= least)
        ids, weights = kept if ids is None else ids[kept], weights[kept]
    place = _invert(weights, draw.uniform)
    return place if ids is None else int(ids[place])


def _least_of_nucleus(weights: Floats, top_p: float) -> float:
    """The lowest of the highest `weights`, the highest of which is 1, that together are `top_p` of their sum."""
    total = float(weights.sum())
    for others in (LIKELY, len(weights)):
        # So many that weigh less than this cannot be more than is left out.
        likely = weights[np.flatnonzero(weights >= (1 - top_p) * total / others)]
        if float(likely.sum(dtype=np.float64)) >= top_p * total:
            break
    descending = np.sort(likely)[::-1]
    last = int(np.searchsorted(descending.cumsum(dtype=np.float64), top_p * total))
    return float(descending[min(last, len(descending) - 1)])


def _invert(weights: Floats, number: float) -> int:
    """The place at which the cumulative sum of `weights`, divided by their total, exceeds `number` in [0, 1)."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), GROUP)).cumsum(dtype=np.float64)
    target = number * sums[-1]
    group = int(np.searchsorted(sums, target, side="right"))
    within = weights[group * GROUP : (group + 1) * GROUP].cumsum(dtype=np.float64)
    if group:
        target -= sums[group - 1]
    # The sum of a group was rounded, so that the target may lie behind its end: then its last token is meant.
    last = int(np.searchsorted(within, within[-1]))
    return group * GROUP + min(int(np.searchsorted(within, target, side="right")), last)
