"""Attention of chunks of prompts over their paged contexts, causal, chunks of any lengths together."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch
from corelm_gpu.kernels.softmax import add_context, factors, tile_positions


def tile_rows(head_dim: int, dtype: torch.dtype) -> int:
    """Rows of a tile of queries: tokens times the query heads that share a KV head."""
    return 128 if head_dim * dtype.itemsize <= 256 else 64


@triton.jit(do_not_specialize=["table_stride"])
def _prefill(
    q,
    keys,
    values,
    tables,
    tile_slices,
    tile_starts,
    starts,
    lengths,
    offsets,
    output,
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
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    # The last tiles of a prompt have the longest contexts: they come first, so that no program is left alone with one.
    tile, kv_head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    piece = tl.load(tile_slices + tile)
    begin = tl.load(tile_starts + tile)
    start = tl.load(starts + piece)
    length = tl.load(lengths + piece)
    member = tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    tokens: tl.constexpr = ROWS // GROUP
    token = begin + member // GROUP
    here = (member < tokens * GROUP) & (token < length)
    real = here[:, None] & (columns < HEAD_DIM)[None, :]
    head = kv_head * GROUP + member % GROUP
    row = (tl.load(offsets + piece) + token).to(tl.int64)
    query = tl.load(q + (row * q_stride + head * HEAD_DIM)[:, None] + columns[None, :], mask=real, other=0.0)
    positions = start + token
    last = start + tl.minimum(begin + tokens, length)
    first = 0
    if WINDOWED:
        first = tl.maximum(start + begin + 1 - window, 0) // TILE * TILE
    total, _highest, weight = add_context(
        query, positions, keys, values, tables + piece.to(tl.int64) * table_stride, kv_head,
        first, (start + begin + 1) // TILE * TILE, last, window, scale, cap,
        ROWS, KV_HEADS, HEAD_DIM, WIDTH, BLOCK_SIZE, TILE, WINDOWED, CAPPED,
    )  # fmt: skip
    attended = total / tl.where(weight > 0, weight, 1.0)[:, None]
    place = (row * (KV_HEADS * GROUP) + head) * HEAD_DIM
    tl.store(output + place[:, None] + columns[None, :], attended.to(output.dtype.element_ty), mask=real)


def prefill_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    tile_slices: torch.Tensor,
    tile_starts: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    output: torch.Tensor,
    *,
    window: int | None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Launch:
    """Causal attention of slices of sequences, whose keys and values are in the cache already.

    Slice s has ``lengths[s]`` tokens from position ``starts[s]`` on, in the rows of `q` [M, heads, head_dim] from
    ``offsets[s]`` on, and the blocks ``tables[s]``. A tile computes the tokens of slice ``tile_slices[t]`` from its
    ``tile_starts[t]`` on, ``tile_rows(...) // group`` of them. All indices are int32. `output` is contiguous.
    For `scale` and `softcap` see `decode_attention`.
    """
    _, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    rows = tile_rows(head_dim, q.dtype)
    return Launch(
        kernel=_prefill,
        grid=(len(tile_slices), kv_heads),
        arguments={
            "q": q,
            "keys": keys,
            "values": values,
            "tables": tables,
            "tile_slices": tile_slices,
            "tile_starts": tile_starts,
            "starts": starts,
            "lengths": lengths,
            "offsets": offsets,
            "output": output,
            **factors(head_dim**-0.5 if scale is None else scale, softcap),
            "window": window or 0,
            "table_stride": tables.stride(0),
            "q_stride": q.stride(0),
        },
        constants={
            "KV_HEADS": kv_heads,
            "GROUP": heads // kv_heads,
            "ROWS": rows,
            "HEAD_DIM": head_dim,
            "WIDTH": triton.next_power_of_2(head_dim),
            "BLOCK_SIZE": block_size,
            "TILE": tile_positions(head_dim, q.dtype),
            "WINDOWED": window is not None,
            "CAPPED": softcap is not None,
        },
        num_warps=8,
        num_stages=2,
    )
