"""Rotary position embedding (RoFormer, arXiv:2104.09864) and its stretchings to longer contexts."""

import math

import torch

from corelm_torch.config import ModelConfig, RopeScaling


def rope_table(config: ModelConfig, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines for positions below `length`, each [length, rope_dim / 2] in float32."""
    angles = torch.outer(torch.arange(length, dtype=torch.float32), inverse_frequencies(config))
    factor = config.rope_scaling.attention_factor if config.rope_scaling else 1.0
    return angles.cos() * factor, angles.sin() * factor


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the leading dimensions of `x` [M, heads, head_dim], in pairs (i, i + rope_dim / 2).

    `cos` and `sin` are [M, 1, rope_dim / 2] in the dtype of `x`.
    """
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat([*rotated, x[..., 2 * half :]] if 2 * half < x.shape[-1] else rotated, dim=-1)


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """Radians per position of each pair, [rope_dim / 2] in float32."""
    exponents = torch.arange(0, config.rope_dim, 2, dtype=torch.int64).float() / config.rope_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "factors":
        return frequencies / torch.tensor(scaling.factors)
    if scaling.kind == "llama3":
        return _llama3(frequencies, scaling)
    return _yarn(frequencies, scaling, config)


def _llama3(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1: stretch long wavelengths, keep short ones, blend between."""
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return torch.lerp(frequencies / scaling.factor, frequencies, keep.clamp(0, 1))


def _yarn(frequencies: torch.Tensor, scaling: RopeScaling, config: ModelConfig) -> torch.Tensor:
    """YaRN (arXiv:2309.00071): a linear ramp over the dimensions between two numbers of turns."""

    def dimension_of(turns: float) -> float:
        """The dimension whose pair makes that many turns over the original context."""
        ratio = scaling.original_max_position_embeddings / (turns * 2 * math.pi)
        return config.rope_dim * math.log(ratio) / (2 * math.log(config.rope_theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rope_dim - 1)
    ramp = (torch.arange(len(frequencies)) - low) / max(high - low, 0.001)
    return torch.lerp(frequencies, frequencies / scaling.factor, ramp.clamp(0, 1))
