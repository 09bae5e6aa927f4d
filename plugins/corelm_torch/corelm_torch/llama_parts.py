"""Checkpoints of the Llama family. Needs no torch."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from corelm.api import ResolvedModel
from corelm_torch.config import ModelConfig, load_config
from corelm_torch.hookspecs import ModelParts, PlainModel
from corelm_torch.weights import Weight, iter_weights

if TYPE_CHECKING:
    import torch

    from corelm_torch.models import LlamaModel


def llama_parts(model: ResolvedModel) -> ModelParts:
    """The parts of a Llama, Mistral, Qwen2 or Qwen3 model. Raises `ModelLoadError`."""
    config = load_config(model)
    return plain_parts(config, lambda: iter_weights(model, config))


def plain_parts(config: ModelConfig, weights: Callable[[], Iterator[Weight]]) -> ModelParts:
    """The parts of a model that `config` says everything about."""

    def build(dtype: "torch.dtype") -> "LlamaModel":
        from corelm_torch.models import LlamaModel

        return LlamaModel(config, weights, dtype=dtype)

    return ModelParts(config=config, build=build, plain=PlainModel(config=config, weights=weights))
