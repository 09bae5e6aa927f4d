"""Copying blocks of a paged KV cache, whatever is in them."""

from collections.abc import Iterable
from typing import Any

BlockPairs = Iterable[tuple[int, int]]
"""Blocks to copy, (from, to), one after the other."""


class BlockStore:
    """Blocks, and swap blocks to keep some aside."""

    padding_block: int
    """Stands where a block table has no block."""

    def __init__(self, blocks: Any, swapped: Any) -> None:
        """`blocks` [blocks, ...], which need not be contiguous, and `swapped` [swap blocks, ...]: arrays or tensors."""
        self._blocks = blocks
        self._swapped = swapped

    @property
    def num_bytes(self) -> int:
        """Memory taken once every block is in use, without the swap blocks."""
        return int(self._blocks.nbytes)

    @property
    def num_swap_bytes(self) -> int:
        """Memory taken once every swap block is in use."""
        return int(self._swapped.nbytes)

    def copy(self, pairs: BlockPairs) -> None:
        """Copy blocks to others."""
        for source, target in pairs:
            self._blocks[target] = self._blocks[source]

    def swap_out(self, pairs: BlockPairs) -> None:
        """Copy blocks to swap blocks."""
        for source, target in pairs:
            self._swapped[target] = self._blocks[source]

    def swap_in(self, pairs: BlockPairs) -> None:
        """Copy swap blocks to blocks."""
        for source, target in pairs:
            self._blocks[target] = self._swapped[source]
