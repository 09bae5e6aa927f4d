"""One tensor of a checkpoint."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """A named tensor, in the names and layout of Hugging Face checkpoints."""

    name: str
    """Such as ``model.layers.0.self_attn.q_proj.weight``."""
    tensor: torch.Tensor
    """May lie in a read-only file mapping: copy it, never write to it."""
    file: str
    """The file it came from, for messages."""
