"""The hyperparameters of a model, whatever file they came from."""

from dataclasses import dataclass
from typing import Literal

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]


MAX_LAYERS = 10_000
"""More than any model has: a configuration that says more is damaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched to longer contexts; the meaning is that of transformers' rope types.

    linear: ``factor``.
    llama3: ``factor``, ``low_freq_factor``, ``high_freq_factor``, ``original_max_position_embeddings``.
    yarn: ``factor``, ``original_max_position_embeddings``, ``beta_fast``, ``beta_slow``, ``truncate``,
        ``attention_factor``, which cos and sin are multiplied with.
    factors: ``factors``, by which the unscaled inverse frequencies are divided one by one (how GGUF states llama3).
    """

    kind: Literal["linear", "llama3", "yarn", "factors"]
    factor: float = 1.0
    original_max_position_embeddings: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    """Round the bounds of YaRN's ramp to whole dimensions."""
    attention_factor: float = 1.0
    """Always final: ``mscale`` and ``mscale_all_dim`` are already worked in."""
    factors: tuple[float, ...] = ()
    """``rope_dim / 2`` divisors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """What sizes are made of, and kernels chosen by: all that an executor needs to know of any decoder."""

    architecture: str
    """An `Architecture`, or what a plugin calls its own."""
    vocab_size: int
    hidden_size: int
    num_layers: int
    """With attention of their own: as many as the KV cache has."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    layer_windows: tuple[int | None, ...]
    """Per layer: the window, of a position and those before it, that it attends over, or None for full attention."""
    softcap: float | None = None
    """Scores s become ``softcap * tanh(s / softcap)`` before the softmax."""
    dtype: str | None
    """What the checkpoint says its weights are, such as ``bfloat16``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(ModelShape):
    """A decoder of the Llama family: RMSNorm, rotary positions, grouped-query attention, gated SiLU MLP."""

    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    rope_dim: int
    """Leading dimensions of a head that are rotated, in pairs (i, i + rope_dim / 2); `head_dim` if all are."""
    tie_word_embeddings: bool
    """The model has no ``lm_head.weight``; the embedding serves as output layer."""
    attention_bias: bool
    """q_proj, k_proj and v_proj have a bias."""
    attention_out_bias: bool
    """o_proj has a bias."""
    mlp_bias: bool
    """gate_proj, up_proj and down_proj have a bias."""
    qk_norm: bool
    """Queries and keys go through an RMSNorm over head_dim (q_norm, k_norm) before the rotation."""
    sliding_window: int | None
    """That of the layers that have one in `layer_windows`."""
