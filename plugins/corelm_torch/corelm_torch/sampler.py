"""Sampling: one call for all rows, each with parameters of its own.

The order is that of transformers and vLLM: temperature, then top_k, then top_p and min_p on what top_k left. Tokens
exactly as probable as the last one that top_k or top_p keeps are kept too, so the kept set does not depend on how a
sort breaks ties. A draw depends on nothing but its row's logits, the seed and the number of tokens before it.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from corelm.api import SamplingParams
from corelm_torch.arrays import Ints

HEAD = 1024
"""Most probable tokens that are looked at before a whole row is sorted."""


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


def sample(logits: torch.Tensor, rows: SamplingRows) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Token ids [R] for `logits` [R, vocabulary] in float32, and which rows have no finite maximum.

    Ids of such rows mean nothing.
    """
    top, token_ids = logits.max(dim=-1)
    failed = ~torch.isfinite(top)
    drawn = np.flatnonzero((rows.temperature > 0) & ~failed.cpu().numpy())
    if len(drawn):
        index = torch.from_numpy(drawn).to(logits.device)
        token_ids[index] = _draw(logits.index_select(0, index), rows.take(drawn))
    return token_ids.cpu().numpy(), failed.cpu().numpy()


def uniform(seed: npt.NDArray[np.uint64], index: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) with 48 random bits, each a hash of its seed and index (the finaliser of splitmix64)."""

    def mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    # 48 bits, so that a product with the total probability stays below it in double precision.
    return (mix(mix(seed) ^ index) >> np.uint64(16)).astype(np.float64) * 2.0**-48


def _draw(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """Token ids [R] by inverting the cumulative distribution, in the order of the vocabulary."""
    temperature = torch.from_numpy(rows.temperature).to(logits.device)
    probs = torch.softmax(logits / temperature[:, None], dim=-1)
    filtered = np.flatnonzero((rows.top_k > 0) | (rows.top_p < 1) | (rows.min_p > 0))
    if len(filtered):
        index = torch.from_numpy(filtered).to(logits.device)
        probs[index] = _filter(probs.index_select(0, index), rows.take(filtered))
    cumulative = probs.cumsum(dim=-1, dtype=torch.float64)
    draws = torch.from_numpy(uniform(rows.seed, rows.index)).to(logits.device)
    return torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True)[:, 0]


def _filter(probs: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """`probs` [R, vocabulary] with 0 for what top_k, top_p and min_p drop."""
    vocabulary = probs.shape[1]
    top_k = torch.from_numpy(np.where(rows.top_k > 0, np.minimum(rows.top_k, vocabulary), vocabulary))
    top_p = torch.from_numpy(rows.top_p)
    least = torch.from_numpy(rows.min_p).to(probs) * probs.amax(dim=-1)
    sorted_rows = np.flatnonzero((rows.top_k > 0) | (rows.top_p < 1))
    if len(sorted_rows):
        index = torch.from_numpy(sorted_rows).to(probs.device)
        cut = _least_kept(
            probs.index_select(0, index),
            top_k.to(probs.device).index_select(0, index),
            top_p.to(probs.device).index_select(0, index),
            min(HEAD, vocabulary),
        )
        least[index] = torch.maximum(least[index], cut)
    return probs.where(probs >= least[:, None], 0.0)


def _least_kept(probs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, width: int) -> torch.Tensor:
    """The smallest probability [R] that top_k and top_p keep, found among the `width` most probable tokens.

    Rows for which these do not suffice are sorted as a whole.
    """
    head = probs.topk(width, dim=-1).values
    cumulative = head.cumsum(dim=-1, dtype=torch.float64)
    limited = top_k < probs.shape[1]
    total = cumulative.gather(1, (top_k.clamp(max=width) - 1)[:, None])[:, 0].where(limited, 1.0)
    nucleus = (cumulative < (top_p * total)[:, None]).sum(dim=-1) + 1
    kept = torch.minimum(top_k, nucleus.where(top_p < 1, top_k))
    least = head.gather(1, (kept.clamp(max=width) - 1)[:, None])[:, 0]
    short = (limited & (top_k > width)) | (kept > width)
    if width < probs.shape[1] and bool(short.any()):
        least[short] = _least_kept(probs[short], top_k[short], top_p[short], probs.shape[1])
    return least
