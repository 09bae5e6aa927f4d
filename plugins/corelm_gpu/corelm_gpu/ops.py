"""The operations of a step on the GPU."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from corelm_torch.config import ModelShape
from corelm_torch.ops import Ops
from corelm_torch.rotary import Rotary

from corelm_gpu.inputs import StepInputs
from corelm_gpu.kernels.dequantise import dequantise
from corelm_gpu.kernels.norm import add_norm
from corelm_gpu.kernels.quantised_linear import quantised_linear
from corelm_gpu.kernels.rotate_write import rotate_write
from corelm_gpu.kernels.silu import silu_mul
from corelm_gpu.kv_cache import KVCache
from corelm_gpu.quantised import QuantisedWeight

DEQUANTISED_ROWS = 128
"""From so many rows on, weights are dequantised for a product of PyTorch's: the quantised product would do so again
for every few rows, and feeds the matrix units less well."""


class GpuOps(Ops):
    """Attention, norms and gates in Triton, products in PyTorch."""

    _inputs: StepInputs

    def __init__(self, config: ModelShape, cache: KVCache, device: torch.device) -> None:
        self._config = config
        self._cache = cache
        self._device = device
        self._unrotated = torch.empty(0, 0, dtype=torch.float32, device=device)

    def begin(self, inputs: StepInputs) -> None:
        """Prepare for a step."""
        self._inputs = inputs

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """See `corelm_torch.ops.Ops`."""
        if not isinstance(weight, QuantisedWeight):
            return F.linear(x, weight, bias)
        if len(x) >= DEQUANTISED_ROWS:
            return F.linear(x, self._dequantised(weight, x.dtype), bias)
        y = torch.empty(len(x), weight.shape[0], dtype=x.dtype, device=self._device)
        quantised_linear(x, weight, bias, y).run()
        return y

    def _dequantised(self, weight: QuantisedWeight, dtype: torch.dtype) -> torch.Tensor:
        values = torch.empty(weight.shape, dtype=dtype, device=self._device)
        dequantise(weight, values).run()
        return values

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
        rotate_write(q, k, v, cos, sin, self._inputs.positions, self._inputs.slots, queries, keys, values).run()
        window, softcap = self._config.layer_windows[layer], self._config.softcap
        for launch in self._inputs.plan.launches(queries, keys, values, output, window, scale=scale, softcap=softcap):
            launch.run()
        return output.flatten(1)
