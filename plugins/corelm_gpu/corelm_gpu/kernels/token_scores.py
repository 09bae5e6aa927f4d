"""What log-probabilities are made of: a row's sum of exponentials, the rank of a token, and the highest logits."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.highest import (
    MINUS_INF,
    NOTHING,
    WARPS,
    chunk_of,
    chunk_size,
    gather,
    nth_highest,
    ordered,
    survey,
)
from corelm_gpu.kernels.launch import Launch

TOTALS = 4
"""Numbers that a row's scores begin with."""


@triton.jit
def _totals(row, vocab_size, peak, chosen, CHUNK: tl.constexpr):
    """The sum of all exponentials, and how many logits are higher than `chosen`."""
    sums = tl.zeros((CHUNK,), tl.float32)
    higher = tl.zeros((CHUNK,), tl.int32)
    for start in range(0, vocab_size, CHUNK):
        x = chunk_of(row, start, vocab_size, CHUNK)
        sums += tl.exp(x - peak)
        higher += (x > chosen).to(tl.int32)
    return tl.sum(sums, 0), tl.sum(higher, 0)


@triton.jit
def _next_highest(source, size, key, place, CHUNK: tl.constexpr):
    """The highest logit behind that of `key` at `place`, of equal ones the first: in the order of logits, its place."""
    found = tl.full((), NOTHING, tl.int32)
    at = size
    for start in range(0, size, CHUNK):
        places = start + tl.arange(0, CHUNK)
        keys = ordered(chunk_of(source, start, size, CHUNK))
        behind = (keys < key) | ((keys == key) & (places > place))
        keys = tl.where(behind, keys, NOTHING)
        best = tl.max(keys, 0)
        at = tl.where(best > found, tl.min(tl.where(keys == best, places, size), 0), at)
        found = tl.maximum(found, best)
    return found, at


@triton.jit
def _write_highest(row, vocab_size, maxima, peak, count, values, ids, top_ids, top_logits, CHUNK: tl.constexpr):
    """Write the `count` highest logits and their ids, the highest first and of equal ones the lowest id."""
    least = nth_highest(ordered(maxima), count, tl.full((), MINUS_INF, tl.int32), ordered(peak))
    source, size = row, vocab_size
    few = gather(row, vocab_size, least, ordered(peak), values, ids, CHUNK) <= CHUNK
    if few:
        source, size = values, CHUNK
    key = ordered(peak)
    place = tl.full((), -1, tl.int32)
    for number in range(count):
        key, place = _next_highest(source, size, key, place, CHUNK)
        token = place
        if few:
            token = tl.load(ids + place)
        tl.store(top_ids + number, token)
        tl.store(top_logits + number, tl.load(source + place).to(tl.int32, bitcast=True))


@triton.jit(do_not_specialize=["width"])
def _score_tokens(logits, tokens, counts, values, ids, scores, vocab_size, stride, width, CHUNK: tl.constexpr):
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * stride
    scores += index * (4 + 2 * width)
    maxima, _, broken = survey(row, vocab_size, CHUNK)
    peak = tl.max(maxima, 0)
    finite = (broken == 0) & (peak > float("-inf")) & (peak < float("inf"))
    tl.store(scores, tl.where(finite, peak, float("nan")).to(tl.int32, bitcast=True))
    if finite:
        chosen = tl.load(row + tl.maximum(tl.load(tokens + index), 0))
        total, higher = _totals(row, vocab_size, peak, chosen, CHUNK)
        tl.store(scores + 1, total.to(tl.int32, bitcast=True))
        tl.store(scores + 2, chosen.to(tl.int32, bitcast=True))
        tl.store(scores + 3, higher)
        count = tl.minimum(tl.load(counts + index), vocab_size)
        if count > 0:
            values += index * CHUNK
            ids += index * CHUNK
            top_ids = scores + 4
            _write_highest(row, vocab_size, maxima, peak, count, values, ids, top_ids, top_ids + width, CHUNK)


def score_tokens(logits: torch.Tensor, tokens: torch.Tensor, counts: torch.Tensor, scores: torch.Tensor) -> Launch:
    """Score ``tokens[l]``, int64, by row l of `logits` [L, vocabulary], float32, with the ``counts[l]`` highest logits.

    Writes to `scores`, int32 [L, 4 + 2 * K], with room for every count, or for the vocabulary if that is less: the
    highest logit, the sum of all exponentials of logits less that, the token's logit, how many are higher, K ids and
    K logits. All but ids and the number of higher ones are bits of float32. Without a finite maximum the first number
    is NaN, and nothing else is written. What is said of the token -1 means nothing.
    """
    rows, vocab_size = logits.shape
    chunk = chunk_size(vocab_size)
    values, ids = torch.empty(2, rows, chunk, dtype=torch.int32, device=logits.device)
    return Launch(
        kernel=_score_tokens,
        grid=(rows,),
        arguments={
            "logits": logits,
            "tokens": tokens,
            "counts": counts,
            "values": values.view(torch.float32),
            "ids": ids,
            "scores": scores,
            "vocab_size": vocab_size,
            "stride": logits.stride(0),
            "width": (scores.shape[1] - TOTALS) // 2,
        },
        constants={"CHUNK": chunk},
        num_warps=WARPS,
    )
