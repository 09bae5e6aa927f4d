"""Read a model's hyperparameters from the metadata of a GGUF file."""

import math
import struct
from collections.abc import Mapping
from pathlib import Path

from corelm_gguf.header import GgufHeader, GgufTensorInfo
from corelm_gguf.parts import gguf_tensors, read_gguf_parts
from gguf.constants import GGMLQuantizationType

from corelm.api import ModelLoadError
from corelm_torch.config.fields import Fields
from corelm_torch.config.model import MAX_LAYERS, Architecture, ModelConfig, RopeScaling
from corelm_torch.config.rope import yarn_attention_factor

_ARCHITECTURES: dict[str, Architecture] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
ROPE_FACTORS = "rope_freqs.weight"
"""A tensor that belongs to the configuration: what `RopeScaling.factors` comes from."""


def load_gguf_config(path: Path) -> ModelConfig:
    """Read the metadata of `path`, a file or the first part of a split one. Raises `ModelLoadError`.

    The sizes are checked against tensors, which surely lie in the file, so that wrong ones cost no memory. Windowed
    attention is never used, as in llama.cpp for these architectures.
    """
    parts = read_gguf_parts(path)
    tensors = gguf_tensors(parts)
    architecture, fields = _model_fields(parts[0])
    num_layers = fields.count("block_count", most=MAX_LAYERS)
    hidden_size = fields.count("embedding_length")
    intermediate_size = fields.count("feed_forward_length")
    num_heads = fields.count("attention.head_count")
    num_kv_heads = fields.count("attention.head_count_kv", num_heads)
    head_dim = _head_dim(fields, num_heads)
    rows = {"attn_q": num_heads * head_dim, "attn_k": num_kv_heads * head_dim, "ffn_up": intermediate_size}
    for name, count in rows.items():
        _check_shape(fields, tensors, f"blk.{num_layers - 1}.{name}.weight", (count, hidden_size))
    return ModelConfig(
        architecture=architecture,
        vocab_size=_shape(fields, tensors, "token_embd.weight")[0],
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number("rope.freq_base", 10_000.0),
        rope_scaling=_rope_factors(parts, head_dim) or _rope_scaling(fields),
        rope_dim=head_dim,
        max_position_embeddings=fields.count("context_length"),
        tie_word_embeddings="output.weight" not in tensors,
        attention_bias="blk.0.attn_q.bias" in tensors,
        attention_out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_up.bias" in tensors,
        qk_norm=architecture == "qwen3",
        sliding_window=None,
        layer_windows=(None,) * num_layers,
        dtype=None,
    )


def _model_fields(header: GgufHeader) -> tuple[Architecture, Fields]:
    """The architecture and the metadata that belong to it."""
    everything = Fields(header.metadata, header.path)
    name = everything.text("general.architecture")
    if name not in _ARCHITECTURES:
        raise everything.error(
            f"architecture {name!r} is not supported; supported in GGUF are {', '.join(_ARCHITECTURES)}"
        )
    prefix = f"{name}."
    values = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    fields = Fields(values, header.path, prefix)
    if fields.count("expert_count", 0, least=0):
        raise fields.error("a mixture of experts is not supported")
    return _ARCHITECTURES[name], fields


def _head_dim(fields: Fields, num_heads: int) -> int:
    head_dim = fields.count("attention.key_length", fields.count("embedding_length") // num_heads)
    if fields.count("attention.value_length", head_dim) != head_dim:
        raise fields.error("keys and values of different lengths are not supported")
    if fields.count("rope.dimension_count", head_dim) != head_dim:
        raise fields.error(f"rotating only a part of the {head_dim} dimensions of a head is not supported")
    return head_dim


def _shape(fields: Fields, tensors: Mapping[str, GgufTensorInfo], name: str) -> tuple[int, ...]:
    if name not in tensors:
        raise fields.error(f"tensor {name!r} is missing")
    return tensors[name].shape


def _check_shape(fields: Fields, tensors: Mapping[str, GgufTensorInfo], name: str, expected: tuple[int, ...]) -> None:
    shape = _shape(fields, tensors, name)
    if shape != expected:
        raise fields.error(f"tensor {name!r} has the shape {list(shape)}, but the metadata ask for {list(expected)}")


def _rope_scaling(fields: Fields) -> RopeScaling | None:
    kind = fields.text("rope.scaling.type", "linear")
    factor = fields.number("rope.scaling.factor", 1.0)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    if kind != "yarn":
        raise fields.error(f"rope scaling {kind!r} is not supported (only none, linear and yarn)")
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_max_position_embeddings=fields.count(
            "rope.scaling.original_context_length", fields.count("context_length")
        ),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=fields.number("rope.scaling.attn_factor", 1.0) * yarn_attention_factor(factor),
    )


def _rope_factors(parts: tuple[GgufHeader, ...], head_dim: int) -> RopeScaling | None:
    """The divisors that Llama 3 files have in a tensor, in place of the parameters they come from."""
    for part in parts:
        tensor = part.tensors.get(ROPE_FACTORS)
        if tensor is None:
            continue
        if tensor.type != GGMLQuantizationType.F32 or tensor.shape != (head_dim // 2,):
            raise ModelLoadError(
                f"{part.path}: tensor {ROPE_FACTORS!r} is {tensor.type.name} {list(tensor.shape)}, "
                f"not F32 [{head_dim // 2}]"
            )
        with part.path.open("rb") as file:
            file.seek(tensor.offset)
            factors = struct.unpack(f"<{head_dim // 2}f", file.read(tensor.num_bytes))
        if not all(0 < factor < math.inf for factor in factors):
            raise ModelLoadError(f"{part.path}: tensor {ROPE_FACTORS!r} has values that are not positive numbers")
        return RopeScaling(kind="factors", factors=factors)
    return None
