"""Model definitions in torch, over flattened batches and paged KV caches."""

from corelm_torch.models.llama import LlamaModel
from corelm_torch.models.model import Keep, Model

__all__ = ["Keep", "LlamaModel", "Model"]
