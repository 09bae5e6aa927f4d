"""The building blocks of decoders. Parameters are uninitialised: they come from a checkpoint."""

from typing import Any

import torch
from torch import nn

from corelm_torch.ops import Ops


def parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """An uninitialised parameter for inference."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)


class Linear(nn.Module):
    """A linear layer, computed by the executor."""

    weight: Any
    """[outputs, inputs], or what the executor keeps in its place."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = parameter(outputs, inputs, dtype=dtype)
        self.bias = parameter(outputs, dtype=dtype) if bias else None

    def forward(self, x: torch.Tensor, ops: Ops) -> torch.Tensor:
        return ops.linear(x, self.weight, self.bias)

    def keep(self, weight: object) -> None:
        """Have `weight` in place of the parameter, for an executor that knows what it is."""
        del self.weight
        self.weight = weight


class LinearGroup:
    """Linear layers of the same input. They are computed one by one, or, once they are merged, at once."""

    def __init__(self, *layers: Linear) -> None:
        self._layers = layers
        self._merged: tuple[torch.Tensor, torch.Tensor | None] | None = None
        self._sizes: list[int] = []

    def __call__(self, x: torch.Tensor, ops: Ops) -> list[torch.Tensor]:
        """What each layer makes of `x`. Rows of merged ones lie apart."""
        if self._merged is None:
            return [layer(x, ops) for layer in self._layers]
        return list(torch.split(ops.linear(x, *self._merged), self._sizes, dim=-1))

    def merge(self) -> None:
        """Put the weights into one tensor, of which the layers' become parts, unless an executor keeps others."""
        weights = [layer.weight for layer in self._layers]
        biases = [layer.bias.data for layer in self._layers if layer.bias is not None]
        if not all(isinstance(weight, nn.Parameter) for weight in weights):
            return
        self._sizes = [len(weight) for weight in weights]
        whole = torch.cat([weight.data for weight in weights])
        for layer, part in zip(self._layers, torch.split(whole, self._sizes), strict=True):
            layer.weight.data = part
        self._merged = whole, torch.cat(biases) if biases else None


def merge_groups(model: nn.Module) -> None:
    """Merge all groups of linear layers."""
    for module in model.modules():
        for group in vars(module).values():
            if isinstance(group, LinearGroup):
                group.merge()


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

    def forward(self, x: torch.Tensor, ops: Ops) -> torch.Tensor:
        return ops.norm(x, self.weight, self.eps)

    def after_adding(
        self, x: torch.Tensor | None, residual: torch.Tensor, ops: Ops
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``residual + x``, or `residual` if there is nothing to add, and the norm of it."""
        if x is None:
            return residual, self(residual, ops)
        return ops.add_and_norm(x, residual, self.weight, self.eps)
