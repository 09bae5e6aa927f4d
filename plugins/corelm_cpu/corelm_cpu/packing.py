"""Weights in the layout of the matrix instructions, so that no step has to rearrange them."""

import torch
from corelm_torch.models import LlamaModel, Model
from corelm_torch.models.layers import Linear
from torch import nn


def pack_linears(model: Model) -> None:
    """Replace the weights of all linear layers by packed ones. A tied output layer gets a packed copy of its own.

    Models that compute their linear layers themselves stay as they are.
    """
    if not isinstance(model, LlamaModel):
        return
    if model.lm_head is None:
        vocabulary, width = model.model.embed_tokens.weight.shape
        with torch.device("meta"):
            model.lm_head = Linear(width, vocabulary, bias=False, dtype=model.model.embed_tokens.weight.dtype)
        model.lm_head.weight = model.model.embed_tokens.weight
    for module in model.modules():
        if isinstance(module, Linear):
            packed = torch.ops.mkldnn._reorder_linear_weight(module.weight)
            module.weight = nn.Parameter(packed, requires_grad=False)


def packed_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``x @ weight.T + bias`` for a packed `weight`."""
    output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return output
