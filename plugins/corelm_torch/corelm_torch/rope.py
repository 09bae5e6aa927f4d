"""Rotary position embedding (RoFormer, arXiv:2104.09864) and its stretchings to longer contexts. Needs no torch."""

import math

import numpy as np

from corelm_torch.arrays import Floats
from corelm_torch.config import ModelConfig, RopeScaling


def rope_table(config: ModelConfig, length: int) -> tuple[Floats, Floats]:
    """Cosines and sines for positions below `length`, each [length, rope_dim / 2]."""
    angles = np.outer(np.arange(length, dtype=np.float32), inverse_frequencies(config))
    factor = config.rope_scaling.attention_factor if config.rope_scaling else 1.0
    cosines: Floats = np.cos(angles)
    sines: Floats = np.sin(angles)
    return cosines * factor, sines * factor


def inverse_frequencies(config: ModelConfig) -> Floats:
    """Radians per position of each pair, [rope_dim / 2]."""
    exponents = np.arange(0, config.rope_dim, 2, dtype=np.float32) / config.rope_dim
    # In float64, because NumPy's powers in float32 are less exact than torch's.
    powers = np.power(config.rope_theta, exponents.astype(np.float64))
    frequencies = 1.0 / powers.astype(np.float32)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "factors":
        divided: Floats = np.divide(frequencies, scaling.factors, dtype=np.float32)
        return divided
    if scaling.kind == "llama3":
        return _llama3(frequencies, scaling)
    return _yarn(frequencies, scaling, config)


def _llama3(frequencies: Floats, scaling: RopeScaling) -> Floats:
    """Llama 3.1: stretch long wavelengths, keep short ones, blend between."""
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return _blend(frequencies / scaling.factor, frequencies, keep)


def _yarn(frequencies: Floats, scaling: RopeScaling, config: ModelConfig) -> Floats:
    """YaRN (arXiv:2309.00071): a linear ramp over the dimensions between two numbers of turns."""

    def dimension_of(turns: float) -> float:
        """The dimension whose pair makes that many turns over the original context."""
        ratio = scaling.original_max_position_embeddings / (turns * 2 * math.pi)
        return config.rope_dim * math.log(ratio) / (2 * math.log(config.rope_theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rope_dim - 1)
    ramp = (np.arange(len(frequencies), dtype=np.float32) - low) / max(high - low, 0.001)
    return _blend(frequencies, frequencies / scaling.factor, ramp)


def _blend(first: Floats, second: Floats, share: Floats) -> Floats:
    """From `first` (where `share` is 0 or less) to `second` (1 or more)."""
    share = share.clip(0, 1)
    return first * (1 - share) + second * share
