"""Sampling on the device, without sorting: thresholds are found by bisection.

The rules are those of `corelm_torch.sampler`: temperature, then top_k, then top_p and min_p on what top_k left; tokens
as probable as the last one kept are kept too. A row's draw depends on its logits and its random number alone.
"""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

CHUNK = 4096
"""Tokens that a row's program looks at together."""


@triton.jit
def _ordered(x):
    """Integers in the order of floats."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)


@triton.jit
def _chunk(row, start, vocab_size, CHUNK: tl.constexpr):
    columns = start + tl.arange(0, CHUNK)
    return tl.load(row + columns, mask=columns < vocab_size, other=float("-inf"))


@triton.jit
def _highest(row, vocab_size, CHUNK: tl.constexpr):
    """The highest logit, the lowest id that has it, and how many are not a number."""
    best = float("-inf")
    token = 0
    broken = 0
    for start in range(0, vocab_size, CHUNK):
        x = _chunk(row, start, vocab_size, CHUNK)
        broken += tl.sum((x != x).to(tl.int32), 0)
        value, place = tl.max(x, 0, return_indices=True)
        token = tl.where(value > best, start + place, token)
        best = tl.maximum(best, value)
    return best, token, broken


@triton.jit
def _mass(row, vocab_size, least, best, per_temperature, CHUNK: tl.constexpr, COUNT: tl.constexpr):
    """How many tokens have an ordered logit of at least `least`, or the sum of their weights."""
    total = 0.0
    for start in range(0, vocab_size, CHUNK):
        x = _chunk(row, start, vocab_size, CHUNK)
        kept = _ordered(x) >= least
        if COUNT:
            total += tl.sum(kept.to(tl.float32), 0)
        else:
            total += tl.sum(tl.where(kept, tl.exp((x - best) * per_temperature), 0.0), 0)
    return total


@triton.jit
def _threshold(row, vocab_size, least, wanted, best, per_temperature, CHUNK: tl.constexpr, COUNT: tl.constexpr):
    """The highest threshold, not below `least`, that keeps `wanted` tokens or weight."""
    low = least
    high = _ordered(best)
    while low < high:
        middle = low + (high - low + 1) // 2
        if _mass(row, vocab_size, middle, best, per_temperature, CHUNK, COUNT) >= wanted:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit
def _weights(x, best, per_temperature, least, min_p):
    weights = tl.exp((x - best) * per_temperature)
    return tl.where((_ordered(x) >= least) & (weights >= min_p), weights, 0.0)


@triton.jit
def _draw(row, vocab_size, best, token, per_temperature, least, min_p, number, CHUNK: tl.constexpr):
    """The token at which the weights, summed up in the order of ids, exceed `number` of their total."""
    total = 0.0
    for start in range(0, vocab_size, CHUNK):
        total += tl.sum(_weights(_chunk(row, start, vocab_size, CHUNK), best, per_temperature, least, min_p), 0)
    target = total * number
    before = 0.0
    drawn = -1
    for start in range(0, vocab_size, CHUNK):
        weights = _weights(_chunk(row, start, vocab_size, CHUNK), best, per_temperature, least, min_p)
        sums = before + tl.cumsum(weights, 0)
        columns = start + tl.arange(0, CHUNK)
        found = tl.min(tl.where((weights > 0.0) & (sums > target), columns, vocab_size), 0)
        drawn = tl.where((drawn < 0) & (found < vocab_size), found, drawn)
        before += tl.sum(weights, 0)
    # Rounding may put the target behind the last sum.
    return tl.where(drawn < 0, token, drawn)


@triton.jit
def _sample(
    logits,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    numbers,
    tokens,
    vocab_size,
    stride,
    CHUNK: tl.constexpr,
):
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * stride
    temperature = tl.load(temperatures + index)
    best, token, broken = _highest(row, vocab_size, CHUNK)
    finite = (broken == 0) & (best > float("-inf")) & (best < float("inf"))
    if finite & (temperature > 0.0):
        per_temperature = 1.0 / temperature
        least = _ordered(float("-inf") + best * 0.0)
        top_k = tl.load(top_ks + index)
        if (top_k > 0) & (top_k < vocab_size):
            least = _threshold(row, vocab_size, least, top_k.to(tl.float32), best, per_temperature, CHUNK, True)
        top_p = tl.load(top_ps + index)
        if top_p < 1.0:
            total = _mass(row, vocab_size, least, best, per_temperature, CHUNK, False)
            least = _threshold(row, vocab_size, least, total * top_p, best, per_temperature, CHUNK, False)
        min_p, number = tl.load(min_ps + index), tl.load(numbers + index)
        token = _draw(row, vocab_size, best, token, per_temperature, least, min_p, number, CHUNK)
    tl.store(tokens + index, tl.where(finite, token, -1).to(tl.int64))


def sample(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
    min_ps: torch.Tensor,
    numbers: torch.Tensor,
    tokens: torch.Tensor,
) -> Launch:
    """Write a token for each row of `logits` [R, vocabulary] to `tokens`, int64 [R]; -1 where no maximum is finite.

    The parameters are [R]: temperature 0 takes the most probable token, `top_ks` (int32) 0 keeps all; `numbers` are
    random ones in [0, 1).
    """
    return Launch(
        kernel=_sample,
        grid=(len(logits),),
        arguments={
            "logits": logits,
            "temperatures": temperatures,
            "top_ks": top_ks,
            "top_ps": top_ps,
            "min_ps": min_ps,
            "numbers": numbers,
            "tokens": tokens,
            "vocab_size": logits.shape[1],
            "stride": logits.stride(0),
        },
        constants={"CHUNK": CHUNK},
        num_warps=8,
    )
