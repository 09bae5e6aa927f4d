"""The paged KV cache on the device, and swap blocks in host memory."""

from collections.abc import Iterable

import torch

from corelm_gpu.kernels.copy_blocks import copy_blocks, independent

BlockPairs = Iterable[tuple[int, int]]
"""Blocks to copy, (from, to), one after the other."""


class KVCache:
    """Keys and values [layers, 2, blocks, KV heads, block size, head_dim]; see `corelm_gpu.kernels.rotate_write`."""

    def __init__(
        self,
        *,
        layers: int,
        num_blocks: int,
        num_swap_blocks: int,
        kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (kv_heads, block_size, head_dim)
        self._data = torch.empty(layers, 2, num_blocks, *shape, dtype=dtype, device=device)
        self._swapped = torch.empty(
            layers, 2, num_swap_blocks, *shape, dtype=dtype, pin_memory=device.type == "cuda" and num_swap_blocks > 0
        )
        self._device = device

    @property
    def num_bytes(self) -> int:
        """Memory of the device."""
        return self._data.nbytes

    @property
    def num_swap_bytes(self) -> int:
        """Memory of the host."""
        return self._swapped.nbytes

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, each [blocks, KV heads, block size, head_dim]."""
        keys, values = self._data[layer]
        return keys, values

    def copy(self, pairs: BlockPairs) -> None:
        """Copy blocks to others."""
        for batch in independent(pairs):
            self._run(self._data, self._data, batch)

    def swap_out(self, pairs: BlockPairs) -> None:
        """Copy blocks to swap blocks."""
        for batch in independent((source, ~target) for source, target in pairs):
            self._run(self._data, self._swapped, [(source, ~target) for source, target in batch])

    def swap_in(self, pairs: BlockPairs) -> None:
        """Copy swap blocks to blocks."""
        for batch in independent((~source, target) for source, target in pairs):
            self._run(self._swapped, self._data, [(~source, target) for source, target in batch])

    def _run(self, source: torch.Tensor, target: torch.Tensor, pairs: list[tuple[int, int]]) -> None:
        copy_blocks(_words(source), _words(target), torch.tensor(pairs, dtype=torch.int32).to(self._device)).run()


def _words(cache: torch.Tensor) -> torch.Tensor:
    """A cache as int32 [parts, blocks, words]."""
    return cache.flatten(3).flatten(0, 1).view(torch.int32)
