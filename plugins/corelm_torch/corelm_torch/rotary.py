"""Rotary positions in torch; `corelm_torch.rope` makes the tables."""

from functools import cached_property

import torch


class Rotary:
    """The rotation of one step's M tokens."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype) -> None:
        """`cos` and `sin` are float32 [positions, half], half the dimensions that rotate; `positions` is int64 [M]."""
        self.cos, self.sin, self.positions = cos, sin, positions
        self._dtype = dtype

    @cached_property
    def factors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the tokens, each [M, 1, half], in the model's dtype."""
        cos, sin = (
            table.index_select(0, self.positions).unsqueeze(1).to(self._dtype) for table in (self.cos, self.sin)
        )
        return cos, sin


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the leading dimensions of `x` [M, heads, head_dim], in pairs (i, i + half).

    `cos` and `sin` are [M, 1, half] in the dtype of `x`.
    """
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat([*rotated, x[..., 2 * half :]] if 2 * half < x.shape[-1] else rotated, dim=-1)
