"""Rotary position settings of Hugging Face configurations, read as transformers 5 reads them."""

import math

from corelm_torch.config.fields import Fields
from corelm_torch.config.model import RopeScaling

_DEFAULT_THETA = 10_000.0


def read_rope(config: Fields) -> tuple[float, RopeScaling | None]:
    """The base of the frequencies and how they are scaled.

    ``config.json`` has one object ``rope_parameters`` since transformers 5, and ``rope_theta`` and ``rope_scaling``
    before.
    """
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    parameters = config.group(name)
    theta = parameters.number("rope_theta", config.number("rope_theta", _DEFAULT_THETA))
    if parameters.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)) != 1.0:
        raise config.error("partial_rotary_factor other than 1 is not supported")
    return theta, _read_scaling(config, parameters)


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """What YaRN (https://arxiv.org/abs/2309.00071) multiplies cos and sin with, for a context `factor` times longer."""
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0


def _read_scaling(config: Fields, parameters: Fields) -> RopeScaling | None:
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=parameters.number("factor"))
    if kind not in ("llama3", "yarn"):
        raise config.error(f"rope type {kind!r} is not supported (only default, linear, llama3 and yarn)")
    longest = config.count("max_position_embeddings")
    own = parameters.count("original_max_position_embeddings", longest)
    original = config.count("original_max_position_embeddings", own)
    if kind == "yarn":
        return _read_yarn(parameters, original, longest)
    low, high = parameters.number("low_freq_factor"), parameters.number("high_freq_factor")
    if low >= high:
        raise parameters.error(f"low_freq_factor {low} must be below high_freq_factor {high}")
    return RopeScaling(
        kind="llama3",
        factor=parameters.number("factor"),
        original_max_position_embeddings=original,
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _read_yarn(parameters: Fields, original: int, longest: int) -> RopeScaling:
    factor = parameters.number("factor", longest / original)
    if "mscale" in parameters and "mscale_all_dim" in parameters:
        above = yarn_attention_factor(factor, parameters.number("mscale"))
        attention_factor = above / yarn_attention_factor(factor, parameters.number("mscale_all_dim"))
    else:
        attention_factor = yarn_attention_factor(factor)
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=parameters.number("beta_fast", 32.0),
        beta_slow=parameters.number("beta_slow", 1.0),
        truncate=parameters.flag("truncate", True),
        attention_factor=parameters.number("attention_factor", attention_factor),
    )
