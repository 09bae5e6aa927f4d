"""Checkpoints of what only transformers has modules for. Imports torch and transformers where they are needed."""

from typing import TYPE_CHECKING, Any

from corelm.api import ModelLoadError, ResolvedModel
from corelm_torch.config import ModelShape
from corelm_torch.config.huggingface import read_json_object
from corelm_torch.hookspecs import ModelParts

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

    from corelm_torch.models.transformers_model import TransformersModel
    from corelm_torch.models.transformers_trace import Trace

_LAYER_TYPES = {"full_attention", "sliding_attention"}


def why_not_transformers(architecture: str) -> str:
    """Empty if transformers has a causal language model of that name."""
    try:
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES
    except ImportError:
        return "transformers, which might run it, is not installed (pip install 'corelm-torch[transformers]')"
    if architecture in NAMES.values():
        return ""
    return f"transformers {transformers.__version__} has no causal language model of that name"


def transformers_parts(model: ResolvedModel, architecture: str) -> ModelParts:
    """The parts of a model that runs through transformers' own modules.

    Raises `ModelLoadError` if it asks for what executors cannot do: anything but causal attention over full contexts
    or sliding windows.
    """
    config = _read_config(model, architecture)
    trace = _trace(model, config)
    shape = _shape(model, architecture, config, trace)

    def build(dtype: "torch.dtype") -> "TransformersModel":
        from corelm_torch.models.transformers_model import TransformersModel

        return TransformersModel(model.path, config, shape, trace, dtype)

    return ModelParts(config=shape, build=build, whose="transformers'")


def _read_config(model: ResolvedModel, architecture: str) -> "PreTrainedConfig":
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    values = read_json_object(model.path / "config.json")
    if "auto_map" in values and values.get("model_type") not in CONFIG_MAPPING:
        raise _refusal(model, "it comes with code of its own, which is not run")
    config: PreTrainedConfig
    try:
        config = AutoConfig.from_pretrained(model.path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever a configuration's own checks raise
        raise ModelLoadError(f"{model.path}: transformers cannot read the configuration: {_text(error)}") from error
    made: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if getattr(made, "__name__", None) != architecture:
        raise _refusal(model, f"its model_type {config.model_type!r} does not go with architecture {architecture!r}")
    for problem in _problems(config):
        raise _refusal(model, problem)
    return config


def _problems(config: Any) -> list[str]:
    """What a configuration asks for that cannot be done."""
    layer_types = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
    found = {
        "it is an encoder and a decoder": config.is_encoder_decoder,
        "it is an encoder that became a decoder": getattr(config, "is_decoder", False),
        "it has attention to another model": getattr(config, "add_cross_attention", False),
        "it is made for more than text": config.get_text_config() is not config,
        "its weights are quantised": getattr(config, "quantization_config", None) is not None,
        f"it has layers of {', '.join(sorted(layer_types))}": layer_types,
        "its rotary frequencies follow the longest context of a batch": _follows_contexts(config),
    }
    return [problem for problem, there in found.items() if there]


def _follows_contexts(config: Any) -> bool:
    """LongRoPE of a whole model can be fixed when it is loaded, but not that of some kinds of layers."""
    rope = getattr(config, "rope_parameters", None) or {}
    by_layer_type = {group["rope_type"] for group in rope.values() if isinstance(group, dict) and "rope_type" in group}
    return rope.get("rope_type") == "dynamic" or not by_layer_type.isdisjoint({"dynamic", "longrope"})


def _trace(model: ResolvedModel, config: "PreTrainedConfig") -> "Trace":
    import torch

    from corelm_torch.models.transformers_attention import TRACED, UnsupportedAttentionError
    from corelm_torch.models.transformers_trace import NOT_THROUGH_INTERFACE, trace
    from corelm_torch.models.transformers_weights import empty_model

    # Other implementations of experts look at numbers, which are not there.
    chosen = {"attn_implementation": TRACED, "experts_implementation": "batched_mm"}
    try:
        return trace(empty_model(config, dtype=torch.float32, **chosen))
    except UnsupportedAttentionError as error:
        raise _refusal(model, f"it has {error}") from error
    except Exception as error:  # whatever the model's own code raises without numbers
        if error.args == (TRACED,):  # it knows no implementations of attention but its own
            raise _refusal(model, f"it has {NOT_THROUGH_INTERFACE}") from error
        raise _refusal(
            model, f"its code does not run without numbers: {type(error).__name__}: {_text(error)}"
        ) from error


def _shape(model: ResolvedModel, architecture: str, config: Any, trace: "Trace") -> ModelShape:
    layers = trace.layers
    kv_heads = max(layer.kv_heads for layer in layers)
    if len({(layer.heads, layer.softcap) for layer in layers}) > 1 or any(
        kv_heads % layer.kv_heads for layer in layers
    ):
        raise _refusal(model, "its layers differ in their heads")
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int):
        raise _refusal(model, "its configuration has no max_position_embeddings")
    return ModelShape(
        architecture=architecture,
        vocab_size=trace.vocab_size,
        hidden_size=trace.width,
        num_layers=len(layers),
        num_heads=layers[0].heads,
        num_kv_heads=kv_heads,
        head_dim=max(max(layer.key_dim, layer.value_dim) for layer in layers),
        max_position_embeddings=length,
        layer_windows=tuple(layer.window for layer in layers),
        softcap=layers[0].softcap,
        dtype=str(config.dtype).removeprefix("torch.") if config.dtype is not None else None,
    )


def _refusal(model: ResolvedModel, why: str) -> ModelLoadError:
    return ModelLoadError(f"{model.path}: this model cannot run through transformers' modules: {why}")


def _text(error: Exception) -> str:
    """What it says, in one line."""
    return " ".join(str(error).split())
