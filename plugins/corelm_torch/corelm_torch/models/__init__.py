"""Model definitions over flattened batches and paged KV caches."""

from corelm_torch.models.llama import LlamaModel
from corelm_torch.models.parts import load_parts

__all__ = ["LlamaModel", "load_parts"]
