"""Configurations written by transformers, and wrong ones."""

import json
from pathlib import Path

import pytest
import transformers
from checkpoints import CONFIGS, SIZES, directory_model
from corelm_torch.config import ModelConfig, RopeScaling, load_config

from corelm.api import ModelLoadError

NAMES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def write(directory: Path, **values) -> None:
    base = {"architectures": ["LlamaForCausalLM"], **SIZES}
    (directory / "config.json").write_text(json.dumps(base | values))


def load(directory: Path, **values) -> ModelConfig:
    write(directory, **values)
    return load_config(directory_model(directory))


def error(directory: Path, **values) -> str:
    write(directory, **values)
    with pytest.raises(ModelLoadError) as caught:
        load_config(directory_model(directory))
    assert str(directory / "config.json") in str(caught.value)
    return str(caught.value)


def saved(directory: Path, architecture: str, **values) -> tuple[transformers.PretrainedConfig, ModelConfig]:
    config = CONFIGS[architecture](architectures=[NAMES[architecture]], **(SIZES | values))
    config.save_pretrained(directory)
    return config, load_config(directory_model(directory))


@pytest.mark.parametrize("architecture", CONFIGS)
def test_everything_transformers_writes_is_read(tmp_path, architecture):
    theirs, ours = saved(tmp_path, architecture, tie_word_embeddings=True, rms_norm_eps=3e-5, dtype="bfloat16")
    assert ours.architecture == architecture
    assert (ours.vocab_size, ours.hidden_size, ours.intermediate_size) == (48, 64, 96)
    assert (ours.num_layers, ours.num_heads, ours.num_kv_heads) == (2, 4, 2)
    assert ours.head_dim == ours.rope_dim == (getattr(theirs, "head_dim", None) or 16)
    assert (ours.rms_norm_eps, ours.rope_theta, ours.rope_scaling) == (3e-5, 10_000.0, None)
    assert ours.max_position_embeddings == 128
    assert ours.tie_word_embeddings
    assert ours.attention_bias == (architecture == "qwen2")
    assert not ours.attention_out_bias
    assert not ours.mlp_bias
    assert ours.qk_norm == (architecture == "qwen3")
    assert ours.layer_windows == ((4096, 4096) if architecture == "mistral" else (None, None))
    assert ours.dtype == "bfloat16"


@pytest.mark.parametrize("architecture", CONFIGS)
def test_absent_keys_take_the_defaults_of_transformers(tmp_path, architecture):
    theirs = CONFIGS[architecture]()
    sizes = {
        key: getattr(theirs, key) for key in SIZES if key not in ("num_key_value_heads", "max_position_embeddings")
    }
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [NAMES[architecture]]} | sizes))
    ours = load_config(directory_model(tmp_path))
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.sliding_window == getattr(theirs, "sliding_window", None)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]


def test_biases(tmp_path):
    llama = load(tmp_path, attention_bias=True, mlp_bias=True)
    assert (llama.attention_bias, llama.attention_out_bias, llama.mlp_bias) == (True, True, True)
    mistral = load(tmp_path, architectures=["MistralForCausalLM"], attention_bias=True, mlp_bias=True)
    assert (mistral.attention_bias, mistral.attention_out_bias, mistral.mlp_bias) == (False, False, False)
    qwen3 = load(tmp_path, architectures=["Qwen3ForCausalLM"], attention_bias=True)
    assert (qwen3.attention_bias, qwen3.attention_out_bias) == (True, True)


def test_windows(tmp_path):
    qwen2 = {"architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 4, "sliding_window": 32}
    assert load(tmp_path, **qwen2).layer_windows == (None,) * 4
    assert load(tmp_path, **qwen2, use_sliding_window=True, max_window_layers=3).layer_windows == (None, None, None, 32)
    kinds = ["sliding_attention", "full_attention"] * 2
    assert load(tmp_path, **qwen2, use_sliding_window=True, layer_types=kinds).layer_windows == (32, None, 32, None)
    mistral = load(tmp_path, architectures=["MistralForCausalLM"], sliding_window=None)
    assert (mistral.sliding_window, mistral.layer_windows) == (None, (None, None))
    assert load(tmp_path, sliding_window=32).layer_windows == (None, None)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize("form", ["old", "new"])
def test_rope_scaling_in_both_forms(tmp_path, form):
    new = {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}
    config = load(tmp_path, **(new if form == "new" else {"rope_theta": 5e5, "rope_scaling": LLAMA3}))
    assert config.rope_theta == 5e5
    assert config.rope_scaling == RopeScaling(
        kind="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=64,
    )


def test_rope_types(tmp_path):
    linear = load(tmp_path, rope_scaling={"type": "linear", "factor": 2})
    assert linear.rope_scaling == RopeScaling(kind="linear", factor=2.0)
    assert load(tmp_path, rope_scaling={"rope_type": "default"}).rope_scaling is None
    assert load(tmp_path, rope_scaling=None, rope_theta=7).rope_theta == 7.0


@pytest.mark.parametrize(
    "extra",
    [{}, {"attention_factor": 1.5}, {"mscale": 0.7, "mscale_all_dim": 1.0}, {"mscale": 0.7}, {"factor": 0.5}],
)
def test_yarn_attention_factor_is_that_of_transformers(tmp_path, extra):
    parameters = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, **extra}
    theirs = transformers.LlamaConfig(**SIZES, rope_parameters={**parameters, "rope_theta": 1e4})
    _, factor = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](theirs, "cpu")
    ours = load(tmp_path, rope_parameters=parameters).rope_scaling
    assert ours is not None
    assert ours.attention_factor == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, ["'GemmaForCausalLM'", "LlamaForCausalLM", "Qwen3ForCausalLM"]),
        ({"architectures": None}, ["architectures"]),
        ({"architectures": [["LlamaForCausalLM"]]}, ["architectures"]),
        ({"hidden_size": None}, ["hidden_size is missing"]),
        ({"hidden_size": "64"}, ["hidden_size", "'64'"]),
        ({"hidden_size": True}, ["hidden_size", "True"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers", "10000"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps", "nan"]),
        ({"rms_norm_eps": 10**400}, ["rms_norm_eps"]),
        ({"tie_word_embeddings": 1}, ["tie_word_embeddings"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "'gelu'", "silu"]),
        ({"quantization_config": {"quant_method": "gptq"}}, ["gptq"]),
        ({"rope_scaling": {"rope_type": "longrope"}}, ["'longrope'", "yarn"]),
        ({"rope_scaling": {"rope_type": "linear"}}, ["rope_scaling.factor is missing"]),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, ["low_freq_factor"]),
        ({"rope_scaling": [1]}, ["rope_scaling", "[1]"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor"]),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 0}, ["sliding_window"]),
        (
            {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "layer_types": ["chunked", "chunked"]},
            ["'chunked'", "full_attention"],
        ),
    ],
)
def test_wrong_values_are_named(tmp_path, values, parts):
    message = error(tmp_path, **values)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("values", "part"), [({"num_key_value_heads": 3}, "3 key/value"), ({"head_dim": 15}, "15")])
def test_impossible_heads(tmp_path, values, part):
    write(tmp_path, **values)
    with pytest.raises(ModelLoadError, match=part):
        load_config(directory_model(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_invalid_json(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        load_config(directory_model(tmp_path))


def test_missing_file(tmp_path):
    with pytest.raises(ModelLoadError, match=r"cannot read .*config\.json: No such file"):
        load_config(directory_model(tmp_path))
