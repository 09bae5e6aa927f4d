"""Decoders of the Llama family: Llama, Mistral, Qwen2, Qwen3.

A step's tokens come flattened, without padding: M rows, whichever sequences they belong to. Parameters carry the
names of Hugging Face checkpoints.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from corelm.api import Progress
from corelm_torch.config import ModelConfig
from corelm_torch.models.assign import assign_weights
from corelm_torch.models.layers import Embedding, Linear, LinearGroup, RMSNorm
from corelm_torch.models.model import Keep
from corelm_torch.ops import Ops
from corelm_torch.rope import rope_table
from corelm_torch.rotary import Rotary
from corelm_torch.weights import Weight


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
        self.qkv = LinearGroup(self.q_proj, self.k_proj, self.v_proj)
        self.o_proj = Linear(q_width, width, bias=config.attention_out_bias, dtype=dtype)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype) if config.qk_norm else None

    def forward(self, x: torch.Tensor, rotary: Rotary, ops: Ops) -> torch.Tensor:
        q, k, v = (part.view(len(x), -1, self.head_dim) for part in self.qkv(x, ops))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q, ops), self.k_norm(k, ops)
        output: torch.Tensor = self.o_proj(ops.rotary_attention(self.layer, q, k, v, rotary), ops)
        return output


class MLP(nn.Module):
    """The gated feed-forward part of a layer."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = Linear(width, inner, bias=bias, dtype=dtype)
        self.up_proj = Linear(width, inner, bias=bias, dtype=dtype)
        self.gate_up = LinearGroup(self.gate_proj, self.up_proj)
        self.down_proj = Linear(inner, width, bias=bias, dtype=dtype)

    def forward(self, x: torch.Tensor, ops: Ops) -> torch.Tensor:
        output: torch.Tensor = self.down_proj(ops.silu_and_mul(*self.gate_up(x, ops)), ops)
        return output


class DecoderLayer(nn.Module):
    """Attention and MLP, each normalised before and added to the residual stream after."""

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer, dtype)
        self.mlp = MLP(config, dtype)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)

    def forward(
        self, residual: torch.Tensor, update: torch.Tensor | None, rotary: Rotary, ops: Ops
    ) -> tuple[torch.Tensor, torch.Tensor]:
        residual, x = self.input_layernorm.after_adding(update, residual, ops)
        attended = self.self_attn(x, rotary, ops)
        residual, x = self.post_attention_layernorm.after_adding(attended, residual, ops)
        return residual, self.mlp(x, ops)


MakeLayer = Callable[[ModelConfig, int, torch.dtype], nn.Module]
"""Makes layer number i: a module that is called as `DecoderLayer` is, with the residual stream [M, hidden_size], what
is still to be added to it (None before the first layer), `Rotary` and `Ops`. It returns the stream and what to add."""


class Decoder(nn.Module):
    """Everything but the output layer."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, make_layer: MakeLayer) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype)
        self.layers = nn.ModuleList(make_layer(config, layer, dtype) for layer in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)


class LlamaModel(nn.Module):
    """A whole model; see `corelm_torch.models.Model`.

    With another `make_layer` it is a model of another architecture, between the same embedding, norm and output layer.
    """

    capturable = True

    def __init__(
        self,
        config: ModelConfig,
        weights: Callable[[], Iterator[Weight]],
        *,
        dtype: torch.dtype,
        make_layer: MakeLayer = DecoderLayer,
    ) -> None:
        """`weights` are those of all parameters, under their names."""
        super().__init__()
        self.config = config
        self._weights, self._dtype = weights, dtype
        with torch.device("meta"):
            self.model = Decoder(config, dtype, make_layer)
            self.lm_head = (
                None
                if config.tie_word_embeddings
                else Linear(config.hidden_size, config.vocab_size, bias=False, dtype=dtype)
            )

    def load(self, *, max_model_len: int, device: torch.device, progress: Progress, keep: Keep | None = None) -> None:
        assign_weights(self, self._weights(), device=device, progress=progress, keep=keep)
        self.cos, self.sin = (torch.from_numpy(table).to(device) for table in rope_table(self.config, max_model_len))

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, ops: Ops) -> torch.Tensor:
        residual, update = self.model.embed_tokens(token_ids), None
        rotary = Rotary(self.cos, self.sin, positions, self._dtype)
        for layer in self.model.layers:
            residual, update = layer(residual, update, rotary, ops)
        if update is not None:
            update = update.index_select(0, rows)
        _, output = self.model.norm.after_adding(update, residual.index_select(0, rows), ops)
        return output

    def logits(self, hidden: torch.Tensor, ops: Ops) -> torch.Tensor:
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return ops.linear(hidden, head.weight, None).float()
