"""transformers' models with what the native kernels round."""

import copy
from typing import Any, Literal

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask


def rounded_model(reference: Any, weights: Literal["w8", "bf16"] = "w8") -> Any:
    """A copy with such weights, whose linear layers and attention round their inputs as the kernels do."""
    model = copy.deepcopy(reference)
    round_inputs = _rounded if weights == "w8" else _in_bfloat16
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(_rounded(parameter, half_scale=True) if weights == "w8" else _in_bfloat16(parameter))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: (round_inputs(inputs[0]),))
    AttentionInterface.register("rounded", _attention)
    AttentionMaskInterface.register("rounded", eager_mask)
    model.set_attn_implementation("rounded")
    return model


def _rounded(x: torch.Tensor, *, half_scale: bool = False) -> torch.Tensor:
    """Numbers rounded to 8 bits in groups of 32 of their last dimension; weights have scales in half precision."""
    groups = nn.functional.pad(x, (0, -x.shape[-1] % 32)).unflatten(-1, (-1, 32))
    scales = groups.abs().amax(-1, keepdim=True) / 127
    if half_scale:
        scales = scales.half().float()
    codes = (groups / scales.clamp_min(1e-30)).round().clamp(-128, 127)
    return (codes * scales).flatten(-2)[..., : x.shape[-1]]


def _in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of what is rounded to bfloat16, [1, heads, tokens, head_dim], in transformers' interface."""
    group = query.shape[1] // key.shape[1]
    query, key, value = (_in_bfloat16(x) for x in (query, key, value))
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    weights = (query @ key.mT * scaling + attention_mask).softmax(-1)
    return _in_bfloat16(weights @ value).transpose(1, 2).contiguous(), None
