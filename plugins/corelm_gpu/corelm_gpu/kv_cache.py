"""The paged KV cache on the device, and swap blocks in host memory."""

import math
from collections.abc import Iterable

import numpy as np
import torch
from corelm_torch.sizing import gib

from corelm.api import ModelLoadError
from corelm_gpu.kernels.copy_blocks import copy_blocks, independent
from corelm_gpu.staging import Staging

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
        self._swapped = _host_memory(layers, 2, num_swap_blocks, *shape, dtype=dtype, pinned=device.type == "cuda")
        self._staging = Staging(device)

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

    def try_copies(self) -> None:
        """Copy a block each way, before there is anything in it: no step then waits for the compiler."""
        self.copy([(0, 0)])
        if self.num_swap_bytes:
            self.swap_out([(0, 0)])
            self.swap_in([(0, 0)])

    def _run(self, source: torch.Tensor, target: torch.Tensor, pairs: list[tuple[int, int]]) -> None:
        (sent,) = self._staging.send([np.array(pairs)])
        copy_blocks(_words(source), _words(target), sent).run()


def _host_memory(*shape: int, dtype: torch.dtype, pinned: bool) -> torch.Tensor:
    try:
        return torch.empty(*shape, dtype=dtype, pin_memory=pinned and 0 not in shape)
    except RuntimeError as error:
        size = gib(math.prod(shape) * dtype.itemsize)
        raise ModelLoadError(
            f"The host has no {size} of memory for swap space; choose fewer --swap-tokens: {error}"
        ) from error


def _words(cache: torch.Tensor) -> torch.Tensor:
    """A cache as int32 [parts, blocks, words]."""
    return cache.flatten(3).flatten(0, 1).view(torch.int32)
