"""The operations of a step in bfloat16 with the native kernels."""

import torch
from corelm_torch.batch import Batch
from corelm_torch.config import ModelShape

from corelm_cpu.kernels import PagedAttention
from corelm_cpu.native_cache import NativeKVCache
from corelm_cpu.ops import FastProducts


class NativeOps(FastProducts):
    """Attention that reads the cache in place; products are PyTorch's."""

    def __init__(self, config: ModelShape, attention: PagedAttention, cache: NativeKVCache) -> None:
        self._attention = attention
        self._cache = cache
        self._windows = config.layer_windows

    def begin(self, batch: Batch) -> None:
        """Prepare for a step over `batch`."""
        self._slots, self._starts, self._lengths = batch.slots, batch.starts, batch.lengths
        self._tables = batch.block_tables

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None
    ) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        if scale is not None:
            q = q * (scale * q.shape[-1] ** 0.5)
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        output = torch.empty_like(q)
        cache = self._cache.addresses[layer]
        self._attention.write(cache, self._slots, k.data_ptr(), v.data_ptr())
        self._attention.attend(
            cache, self._starts, self._lengths, self._tables, self._windows[layer], q.data_ptr(), output.data_ptr()
        )
        return output.view(len(q), -1)
