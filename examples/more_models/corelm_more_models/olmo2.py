"""OLMo 2: how its checkpoints are read. Needs no torch until the model is built."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from corelm_torch.hookspecs import ModelParts
from corelm_torch.weights import Weight, iter_weights

from corelm.api import ResolvedModel
from corelm_more_models.configuration import read_config

if TYPE_CHECKING:
    import torch
    from corelm_torch.models import LlamaModel

DEFAULTS = {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048}


def olmo2_parts(model: ResolvedModel) -> ModelParts:
    """The parts of an OLMo 2 model. Raises `ModelLoadError`."""
    config = read_config(model, "olmo2", DEFAULTS)

    def weights() -> Iterator[Weight]:
        return iter_weights(model, config)

    def build(dtype: "torch.dtype") -> "LlamaModel":
        from corelm_torch.models import LlamaModel

        from corelm_more_models.olmo2_layers import Olmo2Layer

        return LlamaModel(config, weights, dtype=dtype, make_layer=Olmo2Layer)

    return ModelParts(config=config, build=build)
