"""The operations of a step on the CPU.

`FastOps` does what is fast with PyTorch alone, `corelm_cpu.native_ops` what is faster. `InvariantOps` gives every token
the same bits however it is batched or chunked: matrix libraries choose their order of summation by the shape, so every
shape here is fixed, or depends on nothing but the token's own position.
"""

from abc import abstractmethod

import torch
import torch.nn.functional as F  # noqa: N812
from corelm_torch.batch import Batch
from corelm_torch.config import ModelShape
from corelm_torch.ops import Ops

from corelm_cpu.attention_plan import AttentionPlan, Group, plan_attention
from corelm_cpu.kv_cache import KVCache
from corelm_cpu.packing import packed_linear

ROWS = 8
"""Rows of a tile of a batch-invariant linear layer: what a matrix library does best at decoding batch sizes."""


class CpuOps(Ops):
    """The operations of a model, for one step after the other."""

    @abstractmethod
    def begin(self, batch: Batch) -> None:
        """Prepare for a step over `batch`."""


class FastProducts(CpuOps):
    """Products with weights as PyTorch does them best.

    With rows of NaNs, matrix libraries keep their neighbours clean only if widths are multiples of 32, as they are in
    all models but toys.
    """

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        return packed_linear(x, weight, bias) if weight.is_mkldnn else F.linear(x, weight, bias)


class GatheringOps(CpuOps):
    """Attention over copies of the contexts; how it is computed is left to the two modes."""

    invariant: bool
    _plan: AttentionPlan
    _slots: torch.Tensor

    def __init__(self, config: ModelShape, cache: KVCache, dtype: torch.dtype) -> None:
        self._cache = cache
        self._dtype = dtype
        self._windows = config.layer_windows
        self._kv_heads = config.num_kv_heads
        self._head_dim = config.head_dim
        self._scale = config.head_dim**-0.5
        self._softcap = config.softcap

    def begin(self, batch: Batch) -> None:
        """Prepare for a step over `batch`."""
        if len(batch.fresh_blocks):
            self._cache.clear(torch.from_numpy(batch.fresh_blocks))
        if len(batch.stale_slots):
            self._cache.clear_slots(torch.from_numpy(batch.stale_slots))
        self._slots = torch.from_numpy(batch.slots)
        self._plan = plan_attention(
            batch,
            invariant=self.invariant,
            block_size=self._cache.block_size,
            padding_block=self._cache.padding_block,
            windows=set(self._windows),
            dtype=self._dtype,
        )

    @abstractmethod
    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attention of `q` [KV heads, n, queries, head_dim] over `k` and `v` [KV heads, n, L, head_dim].

        `mask` [n, queries, L] is added to the scores.
        """

    def _attend_in_steps(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The same as products of matrices and what is between them, the softcap included."""
        heads, contexts, queries, width = q.shape
        scores = torch.bmm((q * self._scale).flatten(0, 1), k.flatten(0, 1).transpose(1, 2))
        if self._softcap is not None:
            scores = scores.div_(self._softcap).tanh_().mul_(self._softcap)
        scores.view(heads, contexts, queries, -1).add_(mask)
        output = torch.bmm(scores.softmax(dim=-1), v.flatten(0, 1))
        return output.view(heads, contexts, queries, width)

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None
    ) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        if scale is not None:
            q = q * (scale / self._scale)
        self._cache.write(layer, self._slots, k, v)
        outputs = [output for group in self._plan.groups for output in self._attend_group(layer, q, group)]
        return torch.cat(outputs).index_select(0, self._plan.order)

    def _attend_group(self, layer: int, q: torch.Tensor, group: Group) -> list[torch.Tensor]:
        """The results of each tile of a group, [n * T, heads * head_dim]."""
        contexts = (self._kv_heads, group.contexts, -1, self._head_dim)
        k, v = (gathered.view(contexts) for gathered in self._cache.gather(layer, group.blocks))
        outputs = []
        for rows, mask in zip(group.rows, group.masks[self._windows[layer]], strict=True):
            n, tile, length = mask.shape
            # The query heads that share a KV head become queries of it.
            queries = q.index_select(0, rows).view(n, tile, self._kv_heads, -1, self._head_dim)
            shared = queries.shape[3]
            queries = queries.permute(2, 0, 1, 3, 4).reshape(self._kv_heads, n, tile * shared, self._head_dim)
            wide = mask.unsqueeze(2).expand(n, tile, shared, length).reshape(n, tile * shared, length)
            output = self._attend(queries, k, v, wide)
            output = output.view(self._kv_heads, n, tile, shared, self._head_dim).permute(1, 2, 0, 3, 4)
            outputs.append(output.reshape(n * tile, -1))
        return outputs


class FastOps(FastProducts, GatheringOps):
    """For speed."""

    invariant = False

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self._softcap is not None:
            return self._attend_in_steps(q, k, v, mask)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.unsqueeze(0), scale=self._scale)


class InvariantOps(GatheringOps):
    """For bits that do not depend on the batch."""

    invariant = True

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        tiles = torch.split(F.pad(x, (0, 0, 0, -len(x) % ROWS)), ROWS)
        return torch.cat([F.linear(tile, weight, bias) for tile in tiles])[: len(x)]

    def silu_and_mul(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        # F.silu computes the ends of a tensor with another exponential function than its vectorised middle.
        return gate.div_(torch.exp(-gate).add_(1)).mul_(up)

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self._attend_in_steps(q, k, v, mask)
