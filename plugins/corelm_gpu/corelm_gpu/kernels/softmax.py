"""Attention of one tile of queries over a stretch of the paged cache, with a running softmax (arXiv:2205.14135).

The device functions that `decode_attention` and `prefill_attention` share. A cache is [blocks, KV heads, block size,
head_dim], see `rotate_write`. Softmaxes are made of ``exp2``: `scale` turns scores into units of log 2.
"""

import math

import torch
import triton
import triton.language as tl


def tile_positions(head_dim: int, dtype: torch.dtype) -> int:
    """Positions that a program looks at together: as many as registers hold beside the sums."""
    return 64 if head_dim * dtype.itemsize <= 256 else 32


def factors(scale: float, softcap: float | None) -> dict[str, float]:
    """The arguments `scale` and `cap` for scores ``q @ k`` that are to be scaled and then capped."""
    if softcap is None:
        return {"scale": scale * math.log2(math.e), "cap": 0.0}
    return {"scale": softcap * math.log2(math.e), "cap": 2 * math.log2(math.e) * scale / softcap}


@triton.jit
def add_tile(
    q,
    positions,
    keys,
    values,
    table,
    kv_head,
    start,
    last,
    window,
    scale,
    cap,
    total,
    highest,
    weight,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    MASKED: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """Add positions `start` to ``start + TILE - 1``, those before `last`, to the running sums.

    The rows of `q` [rows, WIDTH] see the positions up to their own in `positions` [rows], with a window the last
    `window` of those. `total` [rows, WIDTH] is the sum of values weighted by ``exp2((score - highest) * scale)``,
    `weight` [rows] that of the weights. Without MASKED every row sees all of the tile. With CAPPED a score is the
    hyperbolic tangent of itself times ``cap * log(2) / 2``. Keys and values are converted to the type of `q`.
    """
    offsets = start + tl.arange(0, TILE)
    columns = tl.arange(0, WIDTH)
    inside = offsets < last
    block = tl.load(table + offsets // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
    rows = ((block * KV_HEADS + kv_head) * BLOCK_SIZE + offsets % BLOCK_SIZE) * HEAD_DIM
    places = rows[:, None] + columns[None, :]
    # What is not there counts as 0: weights of 0 do not make a NaN harmless.
    loaded = inside[:, None] & (columns < HEAD_DIM)[None, :]
    key = tl.load(keys + places, mask=loaded, other=0.0).to(q.dtype)
    scores = tl.dot(q, tl.trans(key), input_precision="ieee")
    if CAPPED:
        scores = 1.0 - 2.0 / (tl.exp2(scores * cap) + 1.0)
    if MASKED:
        visible = inside[None, :] & (offsets[None, :] <= positions[:, None])
        if WINDOWED:
            visible &= offsets[None, :] > positions[:, None] - window
        scores = tl.where(visible, scores, float("-inf"))
    new_highest = tl.maximum(highest, tl.max(scores, 1))
    # A row that saw nothing yet has no highest score, and -inf - -inf is no number.
    base = tl.where(new_highest == float("-inf"), 0.0, new_highest)
    weights = tl.exp2(scores * scale - (base * scale)[:, None])
    faded = tl.exp2((highest - base) * scale)
    value = tl.load(values + places, mask=loaded, other=0.0).to(q.dtype)
    total = tl.dot(weights.to(value.dtype), value, total * faded[:, None], input_precision="ieee")
    return total, new_highest, weight * faded + tl.sum(weights, 1)


@triton.jit
def add_context(
    q,
    positions,
    keys,
    values,
    table,
    kv_head,
    first,
    unmasked,
    last,
    window,
    scale,
    cap,
    ROWS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """The running sums over positions `first` to ``last - 1``; every row sees those before `unmasked` without a window.

    `first` and `unmasked` are multiples of TILE.
    """
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    if not WINDOWED:
        for start in range(first, unmasked, TILE):
            total, highest, weight = add_tile(
                q, positions, keys, values, table, kv_head, start, last, window, scale, cap,
                total, highest, weight, KV_HEADS, HEAD_DIM, WIDTH, BLOCK_SIZE, TILE, False, False, CAPPED,
            )  # fmt: skip
        first = tl.maximum(first, unmasked)
    for start in range(first, last, TILE):
        total, highest, weight = add_tile(
            q, positions, keys, values, table, kv_head, start, last, window, scale, cap,
            total, highest, weight, KV_HEADS, HEAD_DIM, WIDTH, BLOCK_SIZE, TILE, True, WINDOWED, CAPPED,
        )  # fmt: skip
    return total, highest, weight
