"""Decoders of the Llama family: Llama, Mistral, Qwen2, Qwen3.

A step's tokens come flattened, without padding: M rows, whichever sequences they belong to. Parameters carry the
names of Hugging Face checkpoints.
"""

from collections.abc import Callable

import torch
from torch import nn

from corelm_torch.config import ModelConfig
from corelm_torch.models.layers import Embedding, Linear, RMSNorm, rotate
from corelm_torch.ops import Ops
from corelm_torch.rope import rope_table


class Attention(nn.Module):
    """Grouped-query self-attention with rotary positions."""

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        width, bias = config.hidden_size, config.attention_bias
        q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = Linear(width, q_width, bias=bias, dtype=dtype)
        self.k_proj = Linear(width, kv_width, bias=bias, dtype=dtype)
        self.v_proj = Linear(width, kv_width, bias=bias, dtype=dtype)
        self.o_proj = Linear(q_width, width, bias=config.attention_out_bias, dtype=dtype)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype) if config.qk_norm else None

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, ops: Ops) -> torch.Tensor:
        heads = (len(x), -1, self.head_dim)
        q = self.q_proj(x, ops).view(heads)
        k = self.k_proj(x, ops).view(heads)
        v = self.v_proj(x, ops).view(heads)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        attended = ops.attention(self.layer, rotate(q, cos, sin), rotate(k, cos, sin), v)
        output: torch.Tensor = self.o_proj(attended, ops)
        return output


class MLP(nn.Module):
    """The gated feed-forward part of a layer."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = Linear(width, inner, bias=bias, dtype=dtype)
        self.up_proj = Linear(width, inner, bias=bias, dtype=dtype)
        self.down_proj = Linear(inner, width, bias=bias, dtype=dtype)

    def forward(self, x: torch.Tensor, ops: Ops) -> torch.Tensor:
        inner = ops.silu_and_mul(self.gate_proj(x, ops), self.up_proj(x, ops))
        output: torch.Tensor = self.down_proj(inner, ops)
        return output


class DecoderLayer(nn.Module):
    """Attention and MLP, each normalised before and added to the residual stream after."""

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer, dtype)
        self.mlp = MLP(config, dtype)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, ops: Ops) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, ops)
        output: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x), ops)
        return output


MakeLayer = Callable[[ModelConfig, int, torch.dtype], nn.Module]
"""Makes layer number i: a module that is called with x, cos, sin and ops, as `DecoderLayer` is."""


class Decoder(nn.Module):
    """Everything but the output layer."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, make_layer: MakeLayer) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype)
        self.layers = nn.ModuleList(make_layer(config, layer, dtype) for layer in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)


class LlamaModel(nn.Module):
    """A whole model, made on the meta device. Call `materialise` before assigning its weights.

    With another `make_layer` it is a model of another architecture, between the same embedding, norm and output layer.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, make_layer: MakeLayer = DecoderLayer) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):
            self.model = Decoder(config, dtype, make_layer)
            self.lm_head = (
                None
                if config.tie_word_embeddings
                else Linear(config.hidden_size, config.vocab_size, bias=False, dtype=dtype)
            )

    def materialise(self, *, max_model_len: int, device: torch.device) -> None:
        """Allocate the parameters, uninitialised, and the rotary tables for positions below `max_model_len`."""
        self.to_empty(device=device)
        self.cos, self.sin = (
            torch.from_numpy(table).unsqueeze(1).to(device) for table in rope_table(self.config, max_model_len)
        )

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, ops: Ops) -> torch.Tensor:
        """Final hidden states [len(rows), hidden_size] of `rows`, of the M tokens given by id and position."""
        x = self.model.embed_tokens(token_ids)
        cos = self.cos.index_select(0, positions).to(x.dtype)
        sin = self.sin.index_select(0, positions).to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin, ops)
        output: torch.Tensor = self.model.norm(x.index_select(0, rows))
        return output

    def logits(self, hidden: torch.Tensor, ops: Ops) -> torch.Tensor:
        """Logits [rows, vocab_size], in float32, of what `forward` returned."""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return ops.linear(hidden, head.weight, None).float()
