"""Tiny checkpoints: random models of transformers, saved as safetensors or GGUF."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from corelm_torch.config import ModelConfig, load_config
from corelm_torch.weights import Weight, iter_weights
from gguf import GGMLQuantizationType

from corelm.api import ResolvedModel

SIZES: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
CONFIGS = {
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
}
SMALL_HEADS = {"qwen3": {"head_dim": 16}}


CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=50,
    hidden_size=24,
    intermediate_size=40,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    rope_dim=8,
    max_position_embeddings=64,
    tie_word_embeddings=False,
    attention_bias=False,
    attention_out_bias=False,
    mlp_bias=False,
    qk_norm=False,
    sliding_window=None,
    layer_windows=(None, None),
    dtype=None,
)
"""Of no file."""


def tiny_model(architecture: str = "llama", **changes) -> transformers.PreTrainedModel:
    """A model with 2 layers whose every parameter, biases included, is random."""
    torch.manual_seed(0)
    config = CONFIGS[architecture](**SIZES, **SMALL_HEADS.get(architecture, {}), **changes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model


def save(model: transformers.PreTrainedModel, directory: Path, **options) -> ResolvedModel:
    model.save_pretrained(directory, **options)
    return directory_model(directory)


def directory_model(directory: Path) -> ResolvedModel:
    return ResolvedModel(name=directory.name, path=directory, format="huggingface")


def file_model(path: Path) -> ResolvedModel:
    return ResolvedModel(name=path.name, path=path, format="gguf")


def state(model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """Parameters by name; a tied one once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def read_weights(model: ResolvedModel) -> dict[str, Weight]:
    """All weights of `model`, each of which has a name of its own, and the bytes that its shape needs."""
    weights = list(iter_weights(model, load_config(model)))
    for weight in weights:
        assert weight.data.shape[0] == weight.shape[0]
        assert weight.data.dtype == np.uint8
    by_name = {weight.name: weight for weight in weights}
    assert len(by_name) == len(weights)
    return by_name


def read(model: ResolvedModel) -> dict[str, torch.Tensor]:
    """The values of all weights of `model`, in float32."""
    return {name: torch.from_numpy(weight.values()) for name, weight in read_weights(model).items()}


def write_gguf(
    path: Path,
    model: transformers.PreTrainedModel,
    architecture: str,
    *,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    blocks: Callable[[str, np.ndarray], tuple[np.ndarray, GGMLQuantizationType]] | None = None,
    metadata: dict[str, Any] | None = None,
    extra: dict[str, np.ndarray] | None = None,
    **writer_options,
) -> ResolvedModel:
    """Write `model` as llama.cpp's converter would, with matrices in `kind`, or as `blocks` makes them."""
    writer = gguf.GGUFWriter(path, architecture, **writer_options)
    _add_metadata(writer, model.config, architecture, metadata or {})
    names = gguf.get_tensor_name_map(writer_architecture(architecture), model.config.num_hidden_layers)
    for name, values in state(model).items():
        array = values.numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            array = _interleave(array, heads=array.shape[0] // model.config.head_dim)
        if blocks is not None and array.ndim == 2:
            data, stored = blocks(name, array)
        else:
            stored = kind if array.ndim == 2 else GGMLQuantizationType.F32
            data = gguf.quantize(array, stored)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data, raw_dtype=stored)
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    finish(writer)
    return file_model(path)


def write_one_tensor(path: Path, name: str, blocks: np.ndarray, kind: GGMLQuantizationType) -> Path:
    """A GGUF file with one quantised tensor and no metadata."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor(name, blocks, raw_dtype=kind)
    finish(writer)
    return path


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def writer_architecture(name: str) -> gguf.MODEL_ARCH:
    return next(number for number, known in gguf.MODEL_ARCH_NAMES.items() if known == name)


def _add_metadata(
    writer: gguf.GGUFWriter, config: transformers.PretrainedConfig, architecture: str, metadata: dict[str, Any]
) -> None:
    writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(config.vocab_size)])
    writer.add_array("tokenizer.ggml.token_type", [1] * config.vocab_size)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    values = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": config.rope_parameters["rope_theta"],
        **metadata,
    }
    for key, value in values.items():
        if value is None:
            continue
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        add(f"{architecture}.{key}", value)


def _interleave(array: np.ndarray, heads: int) -> np.ndarray:
    """Row order of GGUF's Llama files: dimension i of a head is followed by i + head_dim / 2."""
    half = array.shape[0] // heads // 2
    return array.reshape(heads, 2, half, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()
