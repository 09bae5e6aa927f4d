"""Which kernel attends for which slice of a step."""

from dataclasses import dataclass

import numpy as np
import torch
from corelm_torch.batch import Batch

from corelm_gpu.kernels.decode_attention import decode_attention
from corelm_gpu.kernels.launch import Launch
from corelm_gpu.kernels.prefill_attention import prefill_attention, tile_rows
from corelm_gpu.staging import Staging

SPLIT_TOKENS = 512
"""Positions of a context that are enough for a program of its own."""
MAX_SPLITS = 32
PROGRAMS = 512
"""Decoding programs that keep a large device busy; more splits than that takes would only have to be joined."""


@dataclass(frozen=True, slots=True)
class Decodes:
    """Slices of one token."""

    tables: torch.Tensor
    lengths: torch.Tensor
    rows: torch.Tensor
    splits: int


@dataclass(frozen=True, slots=True)
class Chunks:
    """Slices of several tokens, in tiles."""

    tables: torch.Tensor
    tile_slices: torch.Tensor
    tile_starts: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    offsets: torch.Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPlan:
    """The attention of one step's slices, the same in every layer."""

    decodes: Decodes | None
    chunks: Chunks | None

    def launches(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        output: torch.Tensor,
        window: int | None,
        *,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> list[Launch]:
        """What computes all rows of `output` [M, heads, head_dim]; see `decode_attention`."""
        found: list[Launch] = []
        if (decodes := self.decodes) is not None:
            found += decode_attention(
                q,
                keys,
                values,
                decodes.tables,
                decodes.lengths,
                decodes.rows,
                output,
                window=window,
                splits=decodes.splits,
                scale=scale,
                softcap=softcap,
            )
        if (chunks := self.chunks) is not None:
            found.append(
                prefill_attention(
                    q,
                    keys,
                    values,
                    chunks.tables,
                    chunks.tile_slices,
                    chunks.tile_starts,
                    chunks.starts,
                    chunks.lengths,
                    chunks.offsets,
                    output,
                    window=window,
                    scale=scale,
                    softcap=softcap,
                )
            )
        return found


def plan_attention(
    batch: Batch, staging: Staging, *, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> AttentionPlan:
    """Slices of one token are decoded, longer ones computed in tiles. `dtype` is that of queries."""
    single = batch.lengths == 1
    decoded, longer = np.flatnonzero(single), np.flatnonzero(~single)
    ends = batch.ends[decoded]
    lengths = batch.lengths[longer]
    tokens_per_tile = tile_rows(head_dim, dtype) // (heads // kv_heads)
    tiles = -(-lengths // tokens_per_tile)
    numbers = np.arange(tiles.sum()) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    sent = staging.send(
        [
            batch.block_tables[decoded],
            ends,
            batch.offsets[decoded],
            batch.block_tables[longer],
            np.repeat(np.arange(len(longer)), tiles),
            numbers * tokens_per_tile,
            batch.starts[longer],
            lengths,
            batch.offsets[longer],
        ]
    )
    splits = choose_splits(int(ends.max()), len(ends) * kv_heads) if len(ends) else 1
    return AttentionPlan(
        decodes=Decodes(sent[0], sent[1], sent[2], splits) if len(decoded) else None,
        chunks=Chunks(*sent[3:]) if len(longer) else None,
    )


def choose_splits(longest: int, programs: int) -> int:
    """Programs, a power of two, that share each context of up to `longest` tokens, where `programs` run without."""
    most = min(MAX_SPLITS, max(PROGRAMS // programs, 1), -(-longest // SPLIT_TOKENS))
    return 1 << (most.bit_length() - 1)
