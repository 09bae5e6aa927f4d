"""Weights of a GGUF file, renamed and rearranged to be those of a Hugging Face checkpoint."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from corelm_gguf.header import GgufHeader, GgufTensorInfo
from corelm_gguf.parts import read_gguf_parts
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from corelm.api import ModelLoadError
from corelm_torch.config import ModelConfig
from corelm_torch.config.gguf import ROPE_FACTORS
from corelm_torch.weights.weight import Weight

_QUANTISED = {GGMLQuantizationType[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")}
_PLAIN = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}
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


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufTensor:
    """One tensor as it is stored."""

    name: str
    """In Hugging Face's form."""
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    data: npt.NDArray[np.uint8]
    """Shape [first dimension, bytes of each of its entries]: blocks never reach over such an entry's end."""
    file: str


def iter_gguf_weights(path: Path, config: ModelConfig) -> Iterator[Weight]:
    """Yield every weight; quantised ones as float32, others as they are. Raises `ModelLoadError`."""
    return (dequantise(tensor) for tensor in iter_gguf_tensors(path, config))


def iter_gguf_tensors(path: Path, config: ModelConfig) -> Iterator[GgufTensor]:
    """Check all headers, then yield every weight in its stored type, with rows in Hugging Face's order.

    For importers that can use quantised weights as they are. Raises `ModelLoadError`.
    """
    parts = read_gguf_parts(path)
    for part in parts:
        for info in part.tensors.values():
            _check_type(info, part.path)
    return _read(parts, config)


def dequantise(tensor: GgufTensor) -> Weight:
    """The values of `tensor`."""
    if tensor.type in _PLAIN:
        values = torch.from_numpy(tensor.data).view(_PLAIN[tensor.type])
    else:
        values = torch.from_numpy(dequantize(tensor.data, tensor.type))
    return Weight(name=tensor.name, tensor=values.reshape(tensor.shape), file=tensor.file)


def _check_type(info: GgufTensorInfo, path: Path) -> None:
    if info.type not in _PLAIN and info.type not in _QUANTISED:
        supported = ", ".join(kind.name for kind in sorted({*_PLAIN, *_QUANTISED}))
        raise ModelLoadError(
            f"{path}: tensor {info.name!r} has the quantisation type {info.type.name}, which is not supported; "
            f"supported are {supported}"
        )
    if info.type in _QUANTISED and len(info.shape) == 1:
        raise ModelLoadError(f"{path}: tensor {info.name!r} has one dimension and the type {info.type.name}")


def _read(parts: tuple[GgufHeader, ...], config: ModelConfig) -> Iterator[GgufTensor]:
    for part in parts:
        # Copy-on-write, because torch warns of arrays that it could not write to.
        file = np.memmap(part.path, mode="c")
        for info in part.tensors.values():
            if info.name == ROPE_FACTORS:
                continue
            data = file[info.offset : info.offset + info.num_bytes].reshape(info.shape[0], -1)
            yield GgufTensor(
                name=_huggingface_name(info.name),
                shape=info.shape,
                type=info.type,
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
