"""What an executor supplies to a model: the operations worth a device's own kernels."""

from typing import Protocol

import torch


class Ops(Protocol):
    """The operations of one step, over its flattened batch of M tokens."""

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """``x @ weight.T + bias`` for `x` [M, in] and `weight` [out, in]."""

    def silu_and_mul(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up``; may overwrite its arguments."""

    def attention(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write `k` and `v` to the KV cache of `layer`, then attend over it.

        `q` is [M, heads, head_dim], `k` and `v` are [M, KV heads, head_dim]; the result is [M, heads * head_dim].
        """
