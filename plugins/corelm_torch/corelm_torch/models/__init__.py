"""Model definitions over flattened batches and paged KV caches."""

from corelm_torch.models.llama import LlamaModel

__all__ = ["LlamaModel"]
