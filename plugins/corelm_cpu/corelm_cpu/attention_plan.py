"""How a step's attention is cut into groups of equal shape, once for all layers.

A tile is some consecutive queries of one sequence. A group is one or several contexts of equal (padded) length, with
equally many tiles of equal size each, so that every tile of a context is one batched operation with its peers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from corelm_torch.arrays import Ints
from corelm_torch.batch import Batch

QUERY_TILE = 256
"""Most queries of a sequence in one operation, where tiles may have any size; bounds the masks' memory."""
SHORTEST = 0.6
"""Contexts that are attended to together have at least this share of the longest one's length."""
INVARIANT_TILE = 8
INVARIANT_CONTEXT = 128
"""In batch-invariant attention tiles are this long and start at multiples of it; contexts are padded to about this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Tiles of one slice that see a context of the same padded length."""

    slice: int
    start: int
    """Position of the first query."""
    tiles: int
    tile: int
    """Queries of each tile."""
    blocks: int
    """Padded length of the context, in blocks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """n contexts of length L with t tiles of T queries each."""

    contexts: int
    blocks: torch.Tensor
    """[n * L / block_size]: block ids of all contexts."""
    rows: torch.Tensor
    """[t, n * T]: the queries' rows in the batch. Where a tile reaches beyond its slice stands some other row."""
    masks: dict[int | None, torch.Tensor]
    """By window: [t, n, T, L], 0 where a query sees a key and -inf elsewhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPlan:
    """The groups of one step."""

    groups: list[Group]
    order: torch.Tensor
    """[M]: where the result of each row of the batch lies among the results of all groups, [t, n * T] of each."""


def plan_attention(
    batch: Batch,
    *,
    invariant: bool,
    block_size: int,
    padding_block: int,
    windows: Iterable[int | None],
    dtype: torch.dtype,
) -> AttentionPlan:
    """Cut the attention of `batch` into groups.

    With `invariant`, the shape in which a query is computed depends on nothing but its position.
    """
    if invariant:
        grouped = _group_equal(_invariant_pieces(batch, block_size))
    else:
        grouped = _group_similar(_pieces(batch, block_size))
    groups, places, filled = [], np.empty(len(batch.token_ids), np.int64), 0
    for pieces in grouped:
        positions, rows, real = _queries(batch, pieces)
        places[rows[real]] = filled + np.flatnonzero(real)
        filled += rows.size
        blocks = _block_ids(batch, pieces, padding_block)
        masks = {window: _mask(positions, blocks.shape[1] * block_size, window, dtype) for window in windows}
        groups.append(
            Group(
                contexts=len(pieces),
                blocks=torch.from_numpy(blocks.ravel()),
                rows=torch.from_numpy(rows.reshape(len(rows), -1)),
                masks=masks,
            )
        )
    return AttentionPlan(groups=groups, order=torch.from_numpy(places))


def _pieces(batch: Batch, block_size: int) -> Iterator[Piece]:
    """Single tiles of at most `QUERY_TILE` queries."""
    for index, (start, end) in enumerate(zip(batch.starts.tolist(), batch.ends.tolist(), strict=True)):
        for first in range(start, end, QUERY_TILE):
            last = min(first + QUERY_TILE, end)
            yield Piece(slice=index, start=first, tiles=1, tile=last - first, blocks=-(-last // block_size))


def _invariant_pieces(batch: Batch, block_size: int) -> Iterator[Piece]:
    """Tiles at fixed positions, with contexts whose padded length depends on the position alone."""
    unit = -(-INVARIANT_CONTEXT // block_size)
    span = unit * block_size // INVARIANT_TILE * INVARIANT_TILE
    for index, (start, end) in enumerate(zip(batch.starts.tolist(), batch.ends.tolist(), strict=True)):
        first = start // INVARIANT_TILE * INVARIANT_TILE
        while first < end:
            boundary = (first // span + 1) * span
            tiles = -(-(min(end, boundary) - first) // INVARIANT_TILE)
            yield Piece(slice=index, start=first, tiles=tiles, tile=INVARIANT_TILE, blocks=-(-boundary // block_size))
            first = boundary


def _group_equal(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Put together what has one tile of equal size and a context of equal length."""
    groups: dict[tuple[int, ...], list[Piece]] = {}
    for piece in pieces:
        alone = piece.slice if piece.tiles > 1 else -1
        groups.setdefault((piece.tile, piece.blocks, alone), []).append(piece)
    return list(groups.values())


def _group_similar(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Put together single queries whose contexts do not differ much; everything else stays alone."""
    groups: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (piece.tile == 1, piece.blocks), reverse=True):
        if groups and piece.tile == groups[-1][0].tile == 1 and piece.blocks >= SHORTEST * groups[-1][0].blocks:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _queries(batch: Batch, pieces: list[Piece]) -> tuple[Ints, Ints, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Positions and rows of a group's queries and whether they are real, each [t, n, T]."""
    first = pieces[0]
    tiles = np.arange(first.tiles)[:, None, None] * first.tile + np.arange(first.tile)
    positions = tiles + np.array([piece.start for piece in pieces])[:, None]
    slices = np.array([piece.slice for piece in pieces])
    starts, lengths, offsets = batch.starts[slices, None], batch.lengths[slices, None], batch.offsets[slices, None]
    within = positions - starts
    real = (within >= 0) & (within < lengths)
    return positions, np.where(real, within + offsets, 0), real


def _block_ids(batch: Batch, pieces: list[Piece], padding_block: int) -> Ints:
    """Block tables [n, L / block_size] of a group's contexts."""
    width = max(piece.blocks for piece in pieces)
    tables = batch.block_tables[[piece.slice for piece in pieces], :width]
    return np.pad(tables, ((0, 0), (0, width - tables.shape[1])), constant_values=padding_block)


def _mask(positions: Ints, length: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """[..., length]: 0 for keys that the queries at `positions` [...] see, -inf elsewhere."""
    distance = torch.from_numpy(positions).unsqueeze(-1) - torch.arange(length)
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
