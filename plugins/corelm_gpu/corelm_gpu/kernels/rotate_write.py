"""Rotary positions (arXiv:2104.09864), and the writing of keys and values into the paged cache, in one kernel.

A cache is [blocks, KV heads, block size, head_dim]: what one program of attention reads of a block is contiguous. Slot
s is position ``s % block_size`` of block ``s // block_size``.
"""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

NUMBERS = 1024
"""That a program takes at a time where there are many tokens; few have programs of their own."""
FEW_TOKENS = 4

LARGEST: tl.constexpr = tl.constexpr(448.0)
SMALLEST_NORMAL: tl.constexpr = tl.constexpr(2.0**-6)
STEPS: tl.constexpr = tl.constexpr(1.5 * 2.0**14)
"""Of float8_e4m3fn. Numbers of the size of `STEPS` are as far apart in float32 as the smallest ones there."""


@triton.jit
def _rotated(rows, positions, cos, sin, columns, inside, HALF: tl.constexpr):
    """One head's vectors, those at `rows` [T, 1] where `inside` [T, W], their pairs (i, i + HALF) rotated, in float32.

    `positions` is [T, 1], `columns` [1, W].
    """
    value = tl.load(rows + columns, mask=inside, other=0.0).to(tl.float32)
    if HALF == 0:
        return value
    partner = tl.where(columns < HALF, columns + HALF, columns - HALF)
    rotates = inside & (columns < 2 * HALF)
    other = tl.load(rows + partner, mask=rotates, other=0.0).to(tl.float32)
    angle = positions * HALF + columns % HALF
    c = tl.load(cos + angle, mask=rotates, other=1.0)
    s = tl.load(sin + angle, mask=rotates, other=0.0)
    return value * c + tl.where(columns < HALF, -other, other) * s


@triton.jit
def _stored(value, kind: tl.constexpr):
    """`value` in the cache's type. In float8_e4m3fn what is too large becomes the largest number there is."""
    if kind == tl.float8e4nv:
        # Rounded here to what the type has, ties to even, as not everything that runs Triton would do so.
        value = value.to(tl.float32)
        bits = value.to(tl.int32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & ~0xFFFFF).to(tl.float32, bitcast=True)
        rounded = tl.where(tl.abs(value) < SMALLEST_NORMAL, value + STEPS - STEPS, normal)
        within = tl.where(rounded > LARGEST, LARGEST, tl.where(rounded < -LARGEST, -LARGEST, rounded))
        value = tl.where(value == value, within, value)
    return value.to(kind)


@triton.jit(do_not_specialize=["num_tokens"])
def _rotate_write(
    q,
    k,
    v,
    cos,
    sin,
    positions,
    slots,
    rotated,
    keys,
    values,
    q_stride,
    k_stride,
    v_stride,
    num_tokens,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    token = (tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)[:, None]
    head = tl.program_id(1)
    columns = tl.arange(0, WIDTH)[None, :]
    inside = (token < num_tokens) & (columns < HEAD_DIM)
    position = tl.load(positions + token, mask=token < num_tokens, other=0)
    if head < HEADS:
        query = _rotated(q + token * q_stride + head * HEAD_DIM, position, cos, sin, columns, inside, HALF)
        tl.store(rotated + (token * HEADS + head) * HEAD_DIM + columns, query.to(rotated.dtype.element_ty), mask=inside)
    else:
        head -= HEADS
        slot = tl.load(slots + token, mask=token < num_tokens, other=-1).to(tl.int64)
        # Rows that only fill a captured batch have no slot.
        inside &= slot >= 0
        place = ((slot // BLOCK_SIZE * KV_HEADS + head) * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_DIM + columns
        key = _rotated(k + token * k_stride + head * HEAD_DIM, position, cos, sin, columns, inside, HALF)
        tl.store(keys + place, _stored(key, keys.dtype.element_ty), mask=inside)
        value = tl.load(v + token * v_stride + head * HEAD_DIM + columns, mask=inside)
        tl.store(values + place, _stored(value, values.dtype.element_ty), mask=inside)


def rotate_write(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    rotated: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> Launch:
    """Rotate `q` [M, heads, head_dim] into `rotated`, and `k` [M, KV heads, head_dim] into the cache `keys`; write `v`.

    `cos` and `sin` are float32 [positions, half], half the dimensions that rotate: none with half 0. `positions` and
    `slots` are ints [M]; nothing is written for slot -1. Rows of `q`, `k` and `v` may lie apart, heads may not.
    """
    tokens, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    width = triton.next_power_of_2(head_dim)
    tile = 1 if tokens <= FEW_TOKENS else NUMBERS // width
    return Launch(
        kernel=_rotate_write,
        grid=(triton.cdiv(tokens, tile), heads + kv_heads),
        arguments={
            "q": q,
            "k": k,
            "v": v,
            "cos": cos,
            "sin": sin,
            "positions": positions,
            "slots": slots,
            "rotated": rotated,
            "keys": keys,
            "values": values,
            "q_stride": q.stride(0),
            "k_stride": k.stride(0),
            "v_stride": v.stride(0),
            "num_tokens": tokens,
        },
        constants={
            "TOKENS": tile,
            "HEADS": heads,
            "KV_HEADS": kv_heads,
            "HEAD_DIM": head_dim,
            "WIDTH": width,
            "HALF": cos.shape[1],
            "BLOCK_SIZE": block_size,
        },
        num_warps=1,
    )


def rotate_reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """`x` [M, heads, head_dim] rotated, in float64."""
    x, half = x.double(), cos.shape[1]
    c, s = (table.double()[positions].unsqueeze(1) for table in (cos, sin))
    first, second = x[..., :half], x[..., half : 2 * half]
    return torch.cat([first * c - second * s, second * c + first * s, x[..., 2 * half :]], dim=-1)


def write_reference(cache: torch.Tensor, x: torch.Tensor, slots: torch.Tensor) -> None:
    """Write `x` [M, KV heads, head_dim] into `cache`."""
    block_size = cache.shape[2]
    kept = slots >= 0
    cache[slots[kept] // block_size, :, slots[kept] % block_size] = x[kept].to(cache.dtype)
