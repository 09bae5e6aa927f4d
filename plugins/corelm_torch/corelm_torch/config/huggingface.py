"""Read the ``config.json`` of a Hugging Face model directory."""

import json
from pathlib import Path
from typing import Any

from corelm.api import ModelLoadError
from corelm_torch.config.fields import Fields
from corelm_torch.config.model import MAX_LAYERS, Architecture, ModelConfig
from corelm_torch.config.rope import read_rope

_ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

_DEFAULTS: dict[Architecture, dict[str, Any]] = {
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096},
    "qwen3": {
        "max_position_embeddings": 32_768,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "sliding_window": 4096,
    },
}
"""What transformers takes for keys that are absent, which configuration files may leave out."""


def load_huggingface_config(directory: Path) -> ModelConfig:
    """Read ``config.json`` in `directory`. Raises `ModelLoadError`."""
    path = directory / "config.json"
    values = read_json_object(path)
    architecture = _architecture(Fields(values, path))
    fields = Fields(_DEFAULTS[architecture] | values, path)
    refuse_unsupported(fields)
    hidden_size = fields.count("hidden_size")
    num_heads = fields.count("num_attention_heads")
    head_dim = fields.count("head_dim", hidden_size // num_heads)
    num_layers = fields.count("num_hidden_layers", most=MAX_LAYERS)
    rope_theta, rope_scaling = read_rope(fields)
    windows = _layer_windows(fields, architecture, num_layers)
    biased = architecture in ("llama", "qwen3") and fields.flag("attention_bias", False)
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.count("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.count("num_key_value_heads", num_heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        rope_dim=head_dim,
        max_position_embeddings=fields.count("max_position_embeddings"),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=biased or architecture == "qwen2",
        attention_out_bias=biased,
        mlp_bias=architecture == "llama" and fields.flag("mlp_bias", False),
        qk_norm=architecture == "qwen3",
        sliding_window=next((window for window in windows if window is not None), None),
        layer_windows=windows,
        dtype=fields.text("dtype", fields.text("torch_dtype", "")) or None,
    )


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises `ModelLoadError`."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} must contain a JSON object, not {type(value).__name__}")
    return value


def read_architecture(fields: Fields) -> str:
    """The name in ``architectures``, such as ``LlamaForCausalLM``."""
    names = fields.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise fields.error(f"architectures must be a list of one name, not {names!r}")
    return names[0]


def _architecture(fields: Fields) -> Architecture:
    name = read_architecture(fields)
    if name not in _ARCHITECTURES:
        raise fields.error(f"architecture {name!r} is not supported; supported are {', '.join(_ARCHITECTURES)}")
    return _ARCHITECTURES[name]


def refuse_unsupported(fields: Fields) -> None:
    """Raise `ModelLoadError` for other activations than SiLU and for quantised weights."""
    activation = fields.text("hidden_act", "silu")
    if activation != "silu":
        raise fields.error(f"hidden_act {activation!r} is not supported (only 'silu')")
    if "quantization_config" in fields:
        method = fields.group("quantization_config").get("quant_method")
        raise fields.error(f"weights quantised with {method!r} are not supported; use an unquantised or GGUF model")


def _layer_windows(fields: Fields, architecture: Architecture, num_layers: int) -> tuple[int | None, ...]:
    """The attention window of each layer, by the rules of transformers' configuration of that architecture."""
    everywhere_full = (None,) * num_layers
    if architecture == "llama" or "sliding_window" not in fields:
        return everywhere_full
    window = fields.count("sliding_window")
    if architecture == "mistral":
        return (window,) * num_layers
    if not fields.flag("use_sliding_window", False):
        return everywhere_full
    kinds = fields.get("layer_types")
    if kinds is None:
        first = fields.count("max_window_layers", 28, least=0)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise fields.error(f"layer_types must be a list with an entry for each of the {num_layers} layers")
    known = {"sliding_attention": window, "full_attention": None}
    for kind in kinds:
        if not isinstance(kind, str) or kind not in known:
            raise fields.error(f"layer_types has {kind!r}; supported are {', '.join(known)}")
    return tuple(known[kind] for kind in kinds)
