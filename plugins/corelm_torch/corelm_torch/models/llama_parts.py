"""Checkpoints of the Llama family."""

from corelm.api import ResolvedModel
from corelm_torch.config import load_config
from corelm_torch.hookspecs import ModelParts
from corelm_torch.models.llama import LlamaModel
from corelm_torch.weights import iter_weights


def llama_parts(model: ResolvedModel) -> ModelParts:
    """The parts of a Llama, Mistral, Qwen2 or Qwen3 model. Raises `ModelLoadError`."""
    config = load_config(model)
    return ModelParts(
        config=config,
        build=lambda dtype: LlamaModel(config, dtype=dtype),
        weights=lambda: iter_weights(model, config),
    )
