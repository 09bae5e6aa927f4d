"""Which kernel attends for which slice of a step."""

from dataclasses import dataclass

import numpy as np
import torch
from corelm_torch.arrays import Ints
from corelm_torch.batch import Batch

from corelm_gpu.kernels.decode_attention import decode_attention
from corelm_gpu.kernels.launch import Launch
from corelm_gpu.kernels.prefill_attention import prefill_attention, tile_rows

SPLIT_TOKENS = 512
"""Positions of a context that are enough for a program of its own."""
MAX_SPLITS = 32
PROGRAMS = 512
"""Decoding programs that keep a large device busy; more splits than that takes would only have to be joined."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decodes:
    """Slices of one token."""

    tables: torch.Tensor
    lengths: torch.Tensor
    rows: torch.Tensor
    splits: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunks:
    """Slices of several tokens, in tiles."""

    tables: torch.Tensor
    tile_slices: torch.Tensor
    tile_starts: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    offsets: torch.Tensor


class AttentionPlan:
    """The attention of one step's slices, the same in every layer."""

    def __init__(self, batch: Batch, *, heads: int, kv_heads: int, head_dim: int, device: torch.device) -> None:
        self._device = device
        single = batch.lengths == 1
        self._decodes = self._plan_decodes(batch, np.flatnonzero(single), kv_heads) if single.any() else None
        tokens_per_tile = tile_rows(head_dim) // (heads // kv_heads)
        self._chunks = None if single.all() else self._plan_chunks(batch, np.flatnonzero(~single), tokens_per_tile)

    def launches(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, output: torch.Tensor, window: int | None
    ) -> list[Launch]:
        """What computes all rows of `output` [M, heads, head_dim]."""
        found: list[Launch] = []
        if (decodes := self._decodes) is not None:
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
            )
        if (chunks := self._chunks) is not None:
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
                )
            )
        return found

    def _plan_decodes(self, batch: Batch, chosen: Ints, kv_heads: int) -> Decodes:
        lengths = batch.ends[chosen]
        return Decodes(
            tables=self._indices(batch.block_tables[chosen]),
            lengths=self._indices(lengths),
            rows=self._indices(batch.offsets[chosen]),
            splits=choose_splits(int(lengths.max()), len(chosen) * kv_heads),
        )

    def _plan_chunks(self, batch: Batch, chosen: Ints, tokens_per_tile: int) -> Chunks:
        lengths = batch.lengths[chosen]
        tiles = -(-lengths // tokens_per_tile)
        numbers = np.arange(tiles.sum()) - np.repeat(np.cumsum(tiles) - tiles, tiles)
        return Chunks(
            tables=self._indices(batch.block_tables[chosen]),
            tile_slices=self._indices(np.repeat(np.arange(len(chosen)), tiles)),
            tile_starts=self._indices(numbers * tokens_per_tile),
            starts=self._indices(batch.starts[chosen]),
            lengths=self._indices(lengths),
            offsets=self._indices(batch.offsets[chosen]),
        )

    def _indices(self, values: Ints) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int32)).to(self._device, non_blocking=True)


def choose_splits(longest: int, programs: int) -> int:
    """Programs, a power of two, that share each context of up to `longest` tokens, where `programs` run without."""
    most = min(MAX_SPLITS, max(PROGRAMS // programs, 1), -(-longest // SPLIT_TOKENS))
    return 1 << (most.bit_length() - 1)
