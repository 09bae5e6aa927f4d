"""The operations of a step on the GPU."""

import torch
import torch.nn.functional as F  # noqa: N812
from corelm_torch.batch import Batch
from corelm_torch.config import ModelConfig

from corelm_gpu.attention_plan import AttentionPlan
from corelm_gpu.kernels.rotate_write import rotate_write
from corelm_gpu.kernels.silu import silu_mul
from corelm_gpu.kv_cache import KVCache


class GpuOps:
    """Implements `corelm_torch.ops.Ops`: attention and gates in Triton, products in PyTorch."""

    _plan: AttentionPlan
    _positions: torch.Tensor
    _slots: torch.Tensor

    def __init__(self, config: ModelConfig, cache: KVCache, device: torch.device) -> None:
        self._config = config
        self._cache = cache
        self._device = device
        self._unrotated = torch.empty(0, 0, dtype=torch.float32, device=device)

    def begin(self, batch: Batch) -> None:
        """Prepare for a step over `batch`."""
        self._positions = torch.from_numpy(batch.positions).to(self._device, non_blocking=True)
        self._slots = torch.from_numpy(batch.slots).to(self._device, non_blocking=True)
        self._plan = AttentionPlan(
            batch,
            heads=self._config.num_heads,
            kv_heads=self._config.num_kv_heads,
            head_dim=self._config.head_dim,
            device=self._device,
        )

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        return F.linear(x, weight, bias)

    def silu_and_mul(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        product = torch.empty_like(gate)
        silu_mul(gate, up, product).run()
        return product

    def attention(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        keys, values = self._cache.layer(layer)
        queries, output = torch.empty_like(q), torch.empty_like(q)
        table = self._unrotated
        rotate_write(q, k, v, table, table, self._positions, self._slots, queries, keys, values).run()
        for launch in self._plan.launches(queries, keys, values, output, self._config.layer_windows[layer]):
            launch.run()
        return output.flatten(1)
