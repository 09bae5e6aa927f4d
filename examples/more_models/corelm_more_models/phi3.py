"""Phi-3 (arXiv:2404.14219): a Llama whose checkpoints keep queries, keys and values in one tensor, gate and up too."""

from collections.abc import Iterator
from dataclasses import replace

from corelm_torch.config import ModelConfig
from corelm_torch.hookspecs import ModelParts
from corelm_torch.llama_parts import plain_parts
from corelm_torch.weights import Weight, iter_weights

from corelm.api import ModelLoadError, ResolvedModel
from corelm_more_models.configuration import read_config

DEFAULTS = {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}


def phi3_parts(model: ResolvedModel) -> ModelParts:
    """The parts of a Phi-3 model. Raises `ModelLoadError`."""
    config = read_config(model, "phi3", DEFAULTS)
    return plain_parts(config, lambda: _split(iter_weights(model, config), config))


def _split(weights: Iterator[Weight], config: ModelConfig) -> Iterator[Weight]:
    """The weights under Llama's names."""
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    inner = config.intermediate_size
    rows = {
        "qkv_proj": {"q_proj": q, "k_proj": kv, "v_proj": kv},
        "gate_up_proj": {"gate_proj": inner, "up_proj": inner},
    }
    for weight in weights:
        module = weight.name.split(".")[-2]
        if module not in rows:
            yield weight
            continue
        parts = rows[module]
        if len(weight.data) != sum(parts.values()):
            raise ModelLoadError(
                f"{weight.file}: tensor {weight.name!r} has {len(weight.data)} rows, "
                f"but the model's configuration asks for {sum(parts.values())}"
            )
        start = 0
        for name, count in parts.items():
            data = weight.data[start : start + count]
            shape = (count, *weight.shape[1:])
            yield replace(weight, name=weight.name.replace(module, name), shape=shape, data=data)
            start += count
