"""The weights of a model that its configuration says everything about (`ModelParts.plain`)."""

from corelm_torch.config import ModelConfig


def plain_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Their shapes by name: those of the parameters of `LlamaModel`."""
    table = (config.vocab_size, config.hidden_size)
    shapes = {"model.embed_tokens.weight": table, "model.norm.weight": (config.hidden_size,)}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = table
    layer_shapes = _layer_shapes(config)
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes.items()}
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    width, inner = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    if config.qk_norm:
        shapes |= {f"self_attn.{name}.weight": (config.head_dim,) for name in ("q_norm", "k_norm")}
    for name, outputs, inputs, bias in (
        ("self_attn.q_proj", q, width, config.attention_bias),
        ("self_attn.k_proj", kv, width, config.attention_bias),
        ("self_attn.v_proj", kv, width, config.attention_bias),
        ("self_attn.o_proj", width, q, config.attention_out_bias),
        ("mlp.gate_proj", inner, width, config.mlp_bias),
        ("mlp.up_proj", inner, width, config.mlp_bias),
        ("mlp.down_proj", width, inner, config.mlp_bias),
    ):
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)
    return shapes
