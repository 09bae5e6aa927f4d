"""Which tensors of a checkpoint become which packed matrices and vectors."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from corelm_torch.arrays import Ints
from corelm_torch.config import ModelConfig

RUN = 16
"""Rows of a tensor that lie together."""
Row = TypeVar("Row", int, Ints)
_NORMS = {
    "input_layernorm": "input_norm",
    "post_attention_layernorm": "post_norm",
    "self_attn.q_norm": "q_norm",
    "self_attn.k_norm": "k_norm",
}
_LAYER_NORM = re.compile(r"model\.(layers\.\d+)\.(.+)\.weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some or all rows of a matrix."""

    tensor: str
    """Name of weight and bias, without ``.weight`` or ``.bias``."""
    first: int = 0
    stride: int = RUN

    def output(self, row: Row) -> Row:
        """Which output of the matrix a row becomes, or several rows."""
        return self.first + row // RUN * self.stride + row % RUN


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedMatrix:
    """A matrix made of one or several tensors."""

    name: str
    outputs: int
    inputs: int
    parts: tuple[Part, ...]
    eight_bits: bool = False
    """At least: the output layer, as 4 bits there cost several percent of perplexity, and the embedding, as its rows
    are read one by one."""


def plan_matrices(config: ModelConfig) -> Iterator[PlannedMatrix]:
    """The matrices of a plain model of the Llama family."""
    for layer in range(config.num_layers):
        yield from _layer(config, f"layers.{layer}", f"model.layers.{layer}")
    yield _vocabulary(config, "head" if config.tie_word_embeddings else "embedding", "model.embed_tokens")
    if not config.tie_word_embeddings:
        yield _vocabulary(config, "head", "lm_head")


def vector_name(tensor: str) -> str:
    """What the weight of a norm is called when it is packed."""
    match = _LAYER_NORM.fullmatch(tensor)
    return f"{match[1]}.{_NORMS[match[2]]}" if match else "norm"


def _layer(config: ModelConfig, name: str, tensor: str) -> Iterator[PlannedMatrix]:
    hidden, inner = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    qkv = (
        Part(tensor=f"{tensor}.self_attn.q_proj"),
        Part(tensor=f"{tensor}.self_attn.k_proj", first=q),
        Part(tensor=f"{tensor}.self_attn.v_proj", first=q + kv),
    )
    gate_up = (
        Part(tensor=f"{tensor}.mlp.gate_proj", stride=2 * RUN),
        Part(tensor=f"{tensor}.mlp.up_proj", first=RUN, stride=2 * RUN),
    )
    o, down = Part(tensor=f"{tensor}.self_attn.o_proj"), Part(tensor=f"{tensor}.mlp.down_proj")
    yield PlannedMatrix(name=f"{name}.qkv", outputs=q + 2 * kv, inputs=hidden, parts=qkv)
    yield PlannedMatrix(name=f"{name}.o", outputs=hidden, inputs=q, parts=(o,))
    yield PlannedMatrix(name=f"{name}.gate_up", outputs=-(-inner // RUN) * 2 * RUN, inputs=hidden, parts=gate_up)
    yield PlannedMatrix(name=f"{name}.down", outputs=hidden, inputs=inner, parts=(down,))


def _vocabulary(config: ModelConfig, name: str, tensor: str) -> PlannedMatrix:
    parts = (Part(tensor=tensor),)
    return PlannedMatrix(name=name, outputs=config.vocab_size, inputs=config.hidden_size, parts=parts, eight_bits=True)
