"""The layers of OLMo 2 (arXiv:2501.00656): norms after attention and MLP, and over all heads of queries and keys."""

import torch
from corelm_torch.config import ModelConfig
from corelm_torch.models.layers import RMSNorm, rotate
from corelm_torch.models.llama import MLP, Attention
from corelm_torch.ops import Ops
from torch import nn


class Olmo2Attention(Attention):
    """Attention whose queries and keys are normalised before they are split into heads."""

    q_norm: RMSNorm
    k_norm: RMSNorm

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__(config, layer, dtype)
        self.q_norm = RMSNorm(config.num_heads * config.head_dim, config.rms_norm_eps, dtype=dtype)
        self.k_norm = RMSNorm(config.num_kv_heads * config.head_dim, config.rms_norm_eps, dtype=dtype)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, ops: Ops) -> torch.Tensor:
        heads = (len(x), -1, self.head_dim)
        q = self.q_norm(self.q_proj(x, ops)).view(heads)
        k = self.k_norm(self.k_proj(x, ops)).view(heads)
        v = self.v_proj(x, ops).view(heads)
        output: torch.Tensor = self.o_proj(ops.attention(self.layer, rotate(q, cos, sin), rotate(k, cos, sin), v), ops)
        return output


class Olmo2Layer(nn.Module):
    """Attention and MLP, each normalised after and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.self_attn = Olmo2Attention(config, layer, dtype)
        self.mlp = MLP(config, dtype)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        self.post_feedforward_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, ops: Ops) -> torch.Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(x, cos, sin, ops))
        output: torch.Tensor = x + self.post_feedforward_layernorm(self.mlp(x, ops))
        return output
