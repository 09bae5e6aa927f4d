"""The layers of OLMo 2 (arXiv:2501.00656): norms after attention and MLP, and over all heads of queries and keys."""

import torch
from corelm_torch.config import ModelConfig
from corelm_torch.models.layers import RMSNorm
from corelm_torch.models.llama import MLP, Attention
from corelm_torch.ops import Ops
from corelm_torch.rotary import Rotary
from torch import nn


class Olmo2Attention(Attention):
    """Attention whose queries and keys are normalised before they are split into heads."""

    q_norm: RMSNorm
    k_norm: RMSNorm

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__(config, layer, dtype)
        self.q_norm = RMSNorm(config.num_heads * config.head_dim, config.rms_norm_eps, dtype=dtype)
        self.k_norm = RMSNorm(config.num_kv_heads * config.head_dim, config.rms_norm_eps, dtype=dtype)

    def forward(self, x: torch.Tensor, rotary: Rotary, ops: Ops) -> torch.Tensor:
        q, k, v = self.qkv(x, ops)
        heads = (len(x), -1, self.head_dim)
        q, k, v = self.q_norm(q, ops).view(heads), self.k_norm(k, ops).view(heads), v.view(heads)
        output: torch.Tensor = self.o_proj(ops.rotary_attention(self.layer, q, k, v, rotary), ops)
        return output


class Olmo2Layer(nn.Module):
    """Attention and MLP, each normalised after and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.self_attn = Olmo2Attention(config, layer, dtype)
        self.mlp = MLP(config, dtype)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        self.post_feedforward_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)

    def forward(
        self, residual: torch.Tensor, update: torch.Tensor | None, rotary: Rotary, ops: Ops
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = residual if update is None else residual + update
        x = x + self.post_attention_layernorm(self.self_attn(x, rotary, ops), ops)
        return x, self.post_feedforward_layernorm(self.mlp(x, ops), ops)
