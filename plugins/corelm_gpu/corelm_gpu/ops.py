"""The operations of a step on the GPU."""

import torch
from corelm_torch.batch import Batch
from corelm_torch.config import ModelShape
from corelm_torch.ops import Ops
from corelm_torch.rotary import Rotary

from corelm_gpu.attention_plan import AttentionPlan
from corelm_gpu.kernels.norm import add_norm
from corelm_gpu.kernels.rotate_write import rotate_write
from corelm_gpu.kernels.silu import silu_mul
from corelm_gpu.kv_cache import KVCache


class GpuOps(Ops):
    """Attention, norms and gates in Triton, products in PyTorch."""

    _plan: AttentionPlan
    _positions: torch.Tensor
    _slots: torch.Tensor

    def __init__(self, config: ModelShape, cache: KVCache, device: torch.device) -> None:
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

    def silu_and_mul(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        product = torch.empty(gate.shape, dtype=gate.dtype, device=self._device)
        silu_mul(gate, up, product).run()
        return product

    def norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        rows = x.reshape(-1, len(weight))
        normed = torch.empty_like(rows)
        add_norm(None, rows, weight, normed, eps).run()
        return normed.view(x.shape)

    def add_and_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `corelm_torch.ops.Ops`."""
        normed = torch.empty_like(residual)
        add_norm(x, residual, weight, normed, eps).run()
        return residual, normed

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None
    ) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        return self._attend(layer, q, k, v, self._unrotated, self._unrotated, scale)

    def rotary_attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rotary: Rotary
    ) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        return self._attend(layer, q, k, v, rotary.cos, rotary.sin, None)

    def _attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        keys, values = self._cache.layer(layer)
        queries, output = (torch.empty(q.shape, dtype=q.dtype, device=self._device) for _ in range(2))
        rotate_write(q, k, v, cos, sin, self._positions, self._slots, queries, keys, values).run()
        for launch in self._plan.launches(queries, keys, values, output, self._config.layer_windows[layer]):
            launch.run()
        return output.flatten(1)
