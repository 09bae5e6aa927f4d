"""From a model's files to the parameters of its module."""

from collections.abc import Iterator

from corelm.api import ResolvedModel
from corelm_torch.config import ModelConfig
from corelm_torch.weights.assign import assign_weights
from corelm_torch.weights.gguf import iter_gguf_weights
from corelm_torch.weights.huggingface import iter_huggingface_weights
from corelm_torch.weights.weight import Weight

__all__ = ["Weight", "assign_weights", "iter_weights"]


def iter_weights(model: ResolvedModel, config: ModelConfig) -> Iterator[Weight]:
    """Check the headers of all files, then yield the weights one by one, each read from disk when it is asked for.

    Names and layouts are those of Hugging Face checkpoints. Buffers that can be computed are left out, and so is
    ``lm_head.weight`` where it is tied to the embedding. Raises `ModelLoadError`.
    """
    weights = iter_gguf_weights(model.path, config) if model.format == "gguf" else iter_huggingface_weights(model.path)
    return (weight for weight in weights if not _is_redundant(weight.name, config))


def _is_redundant(name: str, config: ModelConfig) -> bool:
    return name.endswith("rotary_emb.inv_freq") or (config.tie_word_embeddings and name == "lm_head.weight")
