"""Attention of sequences that compute one token each, their contexts split among programs (flash-decoding)."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch
from corelm_gpu.kernels.softmax import add_context, factors, tile_positions

LEAST_ROWS = 16
"""What a matrix product needs: query heads that share a KV head are its rows, and then empty ones."""


@triton.jit(do_not_specialize=["table_stride"])
def _decode(
    q,
    keys,
    values,
    tables,
    lengths,
    rows,
    output,
    logsums,
    scale,
    cap,
    window,
    table_stride,
    q_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence)
    row = tl.load(rows + sequence).to(tl.int64)
    begin = 0
    if WINDOWED:
        begin = tl.maximum(length - window, 0) // TILE * TILE
    span = tl.cdiv(tl.cdiv(length - begin, SPLITS), TILE) * TILE
    first = begin + split * span
    last = tl.minimum(first + span, length)
    member = tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    real = (member < GROUP)[:, None] & (columns < HEAD_DIM)[None, :]
    head = kv_head * GROUP + member
    query = tl.load(q + row * q_stride + head[:, None] * HEAD_DIM + columns[None, :], mask=real, other=0.0)
    positions = tl.zeros([ROWS], tl.int32) + length - 1
    total, highest, weight = add_context(
        query, positions, keys, values, tables + sequence.to(tl.int64) * table_stride, kv_head,
        first, last // TILE * TILE, last, window, scale, cap,
        ROWS, KV_HEADS, HEAD_DIM, WIDTH, BLOCK_SIZE, TILE, WINDOWED, CAPPED,
    )  # fmt: skip
    divisor = tl.where(weight > 0, weight, 1.0)
    attended = total / divisor[:, None]
    heads = KV_HEADS * GROUP
    if SPLITS == 1:
        place = row * heads + head
        tl.store(output + place[:, None] * HEAD_DIM + columns[None, :], attended.to(output.dtype.element_ty), mask=real)
    else:
        place = (sequence.to(tl.int64) * heads + head) * SPLITS + split
        tl.store(output + place[:, None] * HEAD_DIM + columns[None, :], attended, mask=real)
        logsum = tl.where(weight > 0, highest * scale + tl.log2(divisor), float("-inf"))
        tl.store(logsums + place, logsum, mask=member < GROUP)


@triton.jit
def _join(
    parts,
    logsums,
    rows,
    output,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLITS: tl.constexpr,
):
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.load(rows + sequence).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    inside = columns < HEAD_DIM
    place = (sequence * HEADS + head) * SPLITS + tl.arange(0, SPLITS)
    logsum = tl.load(logsums + place)
    highest = tl.max(logsum, 0)
    weights = tl.exp2(logsum - tl.where(highest == float("-inf"), 0.0, highest))
    part = tl.load(parts + place[:, None] * HEAD_DIM + columns[None, :], mask=inside[None, :], other=0.0)
    total = tl.sum(weights, 0)
    joined = tl.sum(part * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(output + (row * HEADS + head) * HEAD_DIM + columns, joined.to(output.dtype.element_ty), mask=inside)


def decode_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    lengths: torch.Tensor,
    rows: torch.Tensor,
    output: torch.Tensor,
    *,
    window: int | None,
    splits: int,
    scale: float | None = None,
    softcap: float | None = None,
) -> list[Launch]:
    """Attention of row ``rows[s]`` of `q` [M, heads, head_dim] over the first ``lengths[s]`` positions of sequence s.

    The blocks of its context are ``tables[s]`` [S, blocks]; `lengths` and `rows` are [S], all int32. Where a length is
    0, the output is 0. `output` [M, heads, head_dim] is contiguous. `splits`, a power of two, programs share a context.
    Scores are multiplied by `scale`, by default ``head_dim ** -0.5``; with a `softcap` a score s is then
    ``softcap * tanh(s / softcap)``. Keys and values may be of another type than `q`.
    """
    sequences = len(lengths)
    _, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    group, width = heads // kv_heads, triton.next_power_of_2(head_dim)
    if splits == 1:
        parts, logsums = output, lengths
    else:
        parts = torch.empty(sequences, heads, splits, head_dim, dtype=torch.float32, device=q.device)
        logsums = torch.empty(sequences, heads, splits, dtype=torch.float32, device=q.device)
    attend = Launch(
        kernel=_decode,
        grid=(sequences, kv_heads, splits),
        arguments={
            "q": q,
            "keys": keys,
            "values": values,
            "tables": tables,
            "lengths": lengths,
            "rows": rows,
            "output": parts,
            "logsums": logsums,
            **factors(head_dim**-0.5 if scale is None else scale, softcap),
            "window": window or 0,
            "table_stride": tables.stride(0),
            "q_stride": q.stride(0),
        },
        constants={
            "KV_HEADS": kv_heads,
            "GROUP": group,
            "ROWS": max(LEAST_ROWS, triton.next_power_of_2(group)),
            "HEAD_DIM": head_dim,
            "WIDTH": width,
            "BLOCK_SIZE": block_size,
            "TILE": tile_positions(head_dim, q.dtype),
            "SPLITS": splits,
            "WINDOWED": window is not None,
            "CAPPED": softcap is not None,
        },
        num_warps=4,
        num_stages=3,
    )
    if splits == 1:
        return [attend]
    join = Launch(
        kernel=_join,
        grid=(sequences, heads),
        arguments={"parts": parts, "logsums": logsums, "rows": rows, "output": output},
        constants={"HEADS": heads, "HEAD_DIM": head_dim, "WIDTH": width, "SPLITS": splits},
    )
    return [attend, join]
