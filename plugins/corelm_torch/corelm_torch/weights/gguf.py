"""Weights of a GGUF file, renamed and rearranged to be those of a Hugging Face checkpoint."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from corelm_gguf.header import GgufHeader, GgufTensorInfo
from corelm_gguf.parts import read_gguf_parts

from corelm.api import ModelLoadError
from corelm_torch.config import ModelConfig
from corelm_torch.config.gguf import ROPE_FACTORS
from corelm_torch.weights.mapping import map_file
from corelm_torch.weights.weight import PLAIN, Encoding, Weight

_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def iter_gguf_weights(path: Path, config: ModelConfig) -> Iterator[Weight]:
    """Check all headers, then yield every weight, with rows in Hugging Face's order. Raises `ModelLoadError`."""
    parts = read_gguf_parts(path)
    for part in parts:
        for info in part.tensors.values():
            _check_type(info, part.path)
    return _read(parts, config)


def _check_type(info: GgufTensorInfo, path: Path) -> None:
    name = info.type.name
    if name not in tuple(Encoding):
        raise ModelLoadError(
            f"{path}: tensor {info.name!r} has the quantisation type {name}, which is not supported; "
            f"supported are {', '.join(Encoding)}"
        )
    if name not in PLAIN and len(info.shape) == 1:
        raise ModelLoadError(f"{path}: tensor {info.name!r} has one dimension and the type {name}")


def _read(parts: tuple[GgufHeader, ...], config: ModelConfig) -> Iterator[Weight]:
    for part in parts:
        file = map_file(part.path)
        for info in part.tensors.values():
            if info.name == ROPE_FACTORS:
                continue
            data = file[info.offset : info.offset + info.num_bytes].reshape(info.shape[0], -1)
            yield Weight(
                name=_huggingface_name(info.name),
                shape=info.shape,
                encoding=Encoding(info.type.name),
                data=_huggingface_order(info, data, config, part.path),
                file=str(part.path),
            )


def _huggingface_name(name: str) -> str:
    """The tensor's name in a Hugging Face checkpoint; unknown names stay as they are."""
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None or match[2] not in _LAYER_NAMES:
        return _GLOBAL_NAMES.get(name, name)
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"


def _huggingface_order(
    info: GgufTensorInfo, data: npt.NDArray[np.uint8], config: ModelConfig, path: Path
) -> npt.NDArray[np.uint8]:
    """Undo the order of query and key rows in Llama files: GGUF's rotation pairs neighbours, Hugging Face's halves."""
    match = _LAYER_TENSOR.fullmatch(info.name)
    if config.architecture != "llama" or match is None or match[2] not in ("attn_q", "attn_k"):
        return data
    heads = config.num_heads if match[2] == "attn_q" else config.num_kv_heads
    rows = heads * config.head_dim
    if len(data) != rows:
        raise ModelLoadError(f"{path}: tensor {info.name!r} has the shape {list(info.shape)}, but needs {rows} rows")
    pairs = data.reshape(heads, config.head_dim // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, -1)
