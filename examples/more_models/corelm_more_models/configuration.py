"""What the configurations of both architectures have in common."""

from typing import Any

from corelm_torch.config import ModelConfig
from corelm_torch.config.fields import Fields
from corelm_torch.config.huggingface import read_json_object, refuse_unsupported
from corelm_torch.config.model import MAX_LAYERS
from corelm_torch.config.rope import read_rope

from corelm.api import ResolvedModel


def read_config(model: ResolvedModel, architecture: str, defaults: dict[str, Any]) -> ModelConfig:
    """The hyperparameters in ``config.json``; `defaults` are what transformers takes for absent keys.

    Raises `ModelLoadError`.
    """
    path = model.path / "config.json"
    fields = Fields(defaults | read_json_object(path), path)
    refuse_unsupported(fields)
    num_heads = fields.count("num_attention_heads")
    num_layers = fields.count("num_hidden_layers", most=MAX_LAYERS)
    head_dim = fields.count("head_dim", fields.count("hidden_size") // num_heads)
    rope_theta, rope_scaling = read_rope(fields)
    window = fields.count("sliding_window") if "sliding_window" in fields else None
    bias = fields.flag("attention_bias", False)
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.count("vocab_size"),
        hidden_size=fields.count("hidden_size"),
        intermediate_size=fields.count("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.count("num_key_value_heads", num_heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        rope_dim=head_dim,
        max_position_embeddings=fields.count("max_position_embeddings"),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=bias,
        attention_out_bias=bias,
        mlp_bias=False,
        qk_norm=False,
        sliding_window=window,
        layer_windows=(window,) * num_layers,
        dtype=fields.text("dtype", fields.text("torch_dtype", "")) or None,
    )
