"""From a model's files to its `ModelConfig`."""

from pathlib import Path

from corelm.api import ModelLoadError, ResolvedModel
from corelm_torch.config.gguf import load_gguf_config
from corelm_torch.config.huggingface import load_huggingface_config
from corelm_torch.config.model import Architecture, ModelConfig, ModelShape, RopeScaling

__all__ = ["Architecture", "ModelConfig", "ModelShape", "RopeScaling", "check_config", "load_config"]


def load_config(model: ResolvedModel) -> ModelConfig:
    """Read the hyperparameters of `model`, of the Llama family.

    Raises `ModelLoadError` if they are missing, wrong or not supported.
    """
    config = load_gguf_config(model.path) if model.format == "gguf" else load_huggingface_config(model.path)
    check_config(config, model.path)
    return config


def check_config(config: ModelShape, path: Path) -> None:
    """Raise `ModelLoadError` if numbers do not go together."""
    if config.num_heads % config.num_kv_heads:
        raise ModelLoadError(
            f"{path}: {config.num_heads} attention heads cannot share {config.num_kv_heads} key/value heads"
        )
    if config.head_dim % 2:
        raise ModelLoadError(f"{path}: a head dimension of {config.head_dim} is odd and cannot be rotated")
