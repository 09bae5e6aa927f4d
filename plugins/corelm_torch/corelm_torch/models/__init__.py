"""Model definitions in torch, over flattened batches and paged KV caches."""

from corelm_torch.models.assign import assign_weights
from corelm_torch.models.llama import LlamaModel

__all__ = ["LlamaModel", "assign_weights"]
