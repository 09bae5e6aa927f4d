"""The operations of a step in bfloat16 with the native kernels."""

import torch
from corelm_torch.batch import Batch
from corelm_torch.config import ModelConfig

from corelm_cpu.blocks import BlockStore
from corelm_cpu.kernels import CACHE_PADDING, KernelsMissing, PagedAttention
from corelm_cpu.ops import FastProducts


class NativeKVCache(BlockStore):
    """Keys and values of every layer, in the layout of the kernels, and swap blocks.

    Blocks come uninitialised: the kernels let nothing through that the sequence itself did not write.
    """

    def __init__(self, attention: PagedAttention, *, layers: int, num_blocks: int, num_swap_blocks: int) -> None:
        elements, dtype = attention.block_elements, torch.bfloat16
        self.padding_block = num_blocks
        """Stands where a block table has no block; never read."""
        whole = layers * num_blocks * elements
        data = torch.empty(whole + CACHE_PADDING // dtype.itemsize, dtype=dtype)[:whole]
        by_layer = data.view(layers, num_blocks, elements)
        self.addresses = [layer.data_ptr() for layer in by_layer]
        """Of each layer's blocks."""
        swapped = torch.empty(num_swap_blocks, layers, elements, dtype=dtype)
        super().__init__(by_layer.movedim(1, 0), swapped)


class NativeOps(FastProducts):
    """Attention that reads the cache in place; products are PyTorch's."""

    def __init__(self, config: ModelConfig, attention: PagedAttention, cache: NativeKVCache) -> None:
        self._attention = attention
        self._cache = cache
        self._windows = config.layer_windows

    def begin(self, batch: Batch) -> None:
        """Prepare for a step over `batch`."""
        self._slots, self._starts, self._lengths = batch.slots, batch.starts, batch.lengths
        self._tables = batch.block_tables

    def attention(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        output = torch.empty_like(q)
        cache = self._cache.addresses[layer]
        self._attention.write(cache, self._slots, k.data_ptr(), v.data_ptr())
        self._attention.attend(
            cache, self._starts, self._lengths, self._tables, self._windows[layer], q.data_ptr(), output.data_ptr()
        )
        return output.view(len(q), -1)


def choose_attention(
    config: ModelConfig, *, kernels: str, dtype: torch.dtype, block_size: int, threads: int
) -> tuple[PagedAttention | None, str]:
    """The native attention, if it is to be used, and what to call the kernels in the start-up banner."""
    if kernels == "torch":
        return None, "torch (as set)"
    if dtype != torch.bfloat16:
        return None, "torch (exact, batch-invariant float32)"
    try:
        attention = PagedAttention(
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=block_size,
            threads=threads,
        )
    except KernelsMissing as why:
        return None, f"torch ({why})"
    return attention, attention.name
