"""Rotary positions (arXiv:2104.09864), and the writing of keys and values into the paged cache, in one kernel.

A cache is [blocks, KV heads, block size, head_dim]: what one program of attention reads of a block is contiguous. Slot
s is position ``s % block_size`` of block ``s // block_size``.
"""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch


@triton.jit
def _rotated(row, position, cos, sin, columns, HALF: tl.constexpr, HEAD_DIM: tl.constexpr):
    """One head's vector, its pairs (i, i + HALF) rotated, in float32."""
    inside = columns < HEAD_DIM
    value = tl.load(row + columns, mask=inside, other=0.0).to(tl.float32)
    if HALF == 0:
        return value
    partner = tl.where(columns < HALF, columns + HALF, columns - HALF)
    rotates = columns < 2 * HALF
    other = tl.load(row + partner, mask=rotates & inside, other=0.0).to(tl.float32)
    angle = position * HALF + columns % HALF
    c = tl.load(cos + angle, mask=rotates, other=1.0)
    s = tl.load(sin + angle, mask=rotates, other=0.0)
    return value * c + tl.where(columns < HALF, -other, other) * s


@triton.jit
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
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    inside = columns < HEAD_DIM
    position = tl.load(positions + token)
    if head < HEADS:
        value = _rotated(q + token * q_stride + head * HEAD_DIM, position, cos, sin, columns, HALF, HEAD_DIM)
        tl.store(rotated + (token * HEADS + head) * HEAD_DIM + columns, value.to(rotated.dtype.element_ty), mask=inside)
    else:
        head -= HEADS
        slot = tl.load(slots + token)
        if slot >= 0:  # rows that only fill a captured batch have none
            place = ((slot // BLOCK_SIZE * KV_HEADS + head) * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_DIM + columns
            key = _rotated(k + token * k_stride + head * HEAD_DIM, position, cos, sin, columns, HALF, HEAD_DIM)
            tl.store(keys + place, key.to(keys.dtype.element_ty), mask=inside)
            value = tl.load(v + token * v_stride + head * HEAD_DIM + columns, mask=inside)
            tl.store(values + place, value.to(values.dtype.element_ty), mask=inside)


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
    `slots` are int64 [M]; nothing is written for slot -1. Rows of `q`, `k` and `v` may lie apart, heads may not.
    """
    tokens, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    return Launch(
        kernel=_rotate_write,
        grid=(tokens, heads + kv_heads),
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
        },
        constants={
            "HEADS": heads,
            "KV_HEADS": kv_heads,
            "HEAD_DIM": head_dim,
            "WIDTH": triton.next_power_of_2(head_dim),
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
