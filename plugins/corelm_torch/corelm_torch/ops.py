"""What an executor supplies to a model: the operations worth a device's own kernels."""

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from corelm_torch.rotary import Rotary, rotate


class Ops(ABC):
    """The operations of one step, over its flattened batch of M tokens.

    Attention, which goes over the executor's KV cache, has to be supplied; the others are PyTorch's where an executor
    has nothing better. They may overwrite what they are given, but not weights.
    """

    @abstractmethod
    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None
    ) -> torch.Tensor:
        """Write `k` and `v` to the KV cache of `layer`, then attend over it.

        `q` is [M, heads, head_dim], `k` and `v` are [M, KV heads, head_dim]; the result is [M, heads * head_dim].
        Scores are multiplied by `scale`, by default ``head_dim ** -0.5``.
        """

    def rotary_attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rotary: Rotary
    ) -> torch.Tensor:
        """Attention after `q` and `k` were rotated."""
        cos, sin = rotary.factors
        return self.attention(layer, rotate(q, cos, sin), rotate(k, cos, sin), v)

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """``x @ weight.T + bias`` for `x` [M, in] and `weight` [out, in], or what the executor keeps in its place."""
        return F.linear(x, weight, bias)

    def silu_and_mul(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up``"""
        return F.silu(gate, inplace=True).mul_(up)

    def norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Root mean square normalisation over the last dimension (arXiv:1910.07467), times `weight`."""
        return F.rms_norm(x, weight.shape, weight, eps)

    def add_and_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``residual + x``, and the norm of it."""
        total = residual + x
        return total, self.norm(total, weight, eps)
