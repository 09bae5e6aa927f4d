"""The building blocks of decoders. Parameters are uninitialised: they come from a checkpoint."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from corelm_torch.ops import Ops


def parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """An uninitialised parameter for inference."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)


class Linear(nn.Module):
    """A linear layer, computed by the executor."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = parameter(outputs, inputs, dtype=dtype)
        self.bias = parameter(outputs, dtype=dtype) if bias else None

    def forward(self, x: torch.Tensor, ops: Ops) -> torch.Tensor:
        return ops.linear(x, self.weight, self.bias)


class Embedding(nn.Module):
    """A table of vectors, one for each token id."""

    def __init__(self, rows: int, width: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = parameter(rows, width, dtype=dtype)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self.weight.index_select(0, token_ids)


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last dimension (arXiv:1910.07467)."""

    def __init__(self, width: int, eps: float, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = parameter(width, dtype=dtype)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the leading dimensions of `x` [M, heads, head_dim], in pairs (i, i + rope_dim / 2).

    `cos` and `sin` are [M, 1, rope_dim / 2] in the dtype of `x`.
    """
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat([*rotated, x[..., 2 * half :]] if 2 * half < x.shape[-1] else rotated, dim=-1)
