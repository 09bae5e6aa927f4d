"""The weights of a model's files, as they are stored. Needs no torch."""

from collections.abc import Iterator

from corelm.api import ResolvedModel
from corelm_torch.config import ModelConfig
from corelm_torch.weights.check import check_weights
from corelm_torch.weights.gguf import iter_gguf_weights
from corelm_torch.weights.huggingface import iter_huggingface_weights
from corelm_torch.weights.shapes import plain_shapes
from corelm_torch.weights.weight import Encoding, Weight

__all__ = ["Encoding", "Weight", "check_weights", "iter_weights", "plain_shapes"]


def iter_weights(model: ResolvedModel, config: ModelConfig) -> Iterator[Weight]:
    """Check the headers of all files, then yield the weights one by one, mapped from disk.

    Names and layouts are those of Hugging Face checkpoints. Buffers that can be computed are left out, and so is
    ``lm_head.weight`` where it is tied to the embedding. Raises `ModelLoadError`.
    """
    weights = iter_gguf_weights(model.path, config) if model.format == "gguf" else iter_huggingface_weights(model.path)
    return (weight for weight in weights if not _is_redundant(weight.name, config))


def _is_redundant(name: str, config: ModelConfig) -> bool:
    return name.endswith("rotary_emb.inv_freq") or (config.tie_word_embeddings and name == "lm_head.weight")
