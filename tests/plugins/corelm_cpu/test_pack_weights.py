"""Whole models packed: every tensor in its place, of the kind that the setting asks for."""

import os
import subprocess
import sys
from dataclasses import replace

import gguf
import numpy as np
import pytest
from corelm_cpu.kernels import KernelsMissing, library
from corelm_cpu.packed import Kind, cache, load_weights, native
from corelm_cpu.packed import pack as packing
from corelm_cpu.packed.kinds import choose_kind
from corelm_cpu.packed.native import matrix_bytes
from corelm_hf.resolve import resolve_model
from corelm_torch.config import ModelConfig
from corelm_torch.parts import load_parts
from corelm_torch.weights import Encoding, Weight, plain_shapes
from unpacking import unpack

from corelm.api import ModelLoadError

try:
    library()
except KernelsMissing:
    pytest.skip("the kernels were not built", allow_module_level=True)


def config(**changes):
    sizes = {
        "architecture": "llama",
        "vocab_size": 50,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "rope_dim": 8,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "attention_out_bias": False,
        "mlp_bias": False,
        "qk_norm": False,
        "sliding_window": None,
        "layer_windows": (None, None),
        "dtype": None,
    }
    return ModelConfig(**sizes | changes)


def encoded(name, values, encoding):
    """A weight that is stored in `encoding`, or as floats if it has one dimension."""
    if values.ndim == 1 or encoding == "F32":
        encoding, data = "F32", values.view(np.uint8).reshape(len(values), -1)
    elif encoding == "F64":
        data = values.astype(np.float64).view(np.uint8)
    else:
        data = gguf.quantize(values, gguf.GGMLQuantizationType[encoding])
    return Weight(name=name, shape=values.shape, encoding=Encoding(encoding), data=data, file="a file")


def checkpoint(config, encoding="F32", **others):
    """Random weights; `others` have encodings for names that end in the keyword and ``.weight``."""
    random = np.random.default_rng(5)
    weights = {}
    for name, shape in plain_shapes(config).items():
        chosen = next((others[key] for key in others if name.endswith(f"{key}.weight")), encoding)
        weights[name] = encoded(name, random.standard_normal(shape).astype(np.float32), chosen)
    return weights


def pack(config, weights, setting="auto", threads=2):
    steps = []
    packed = load_weights(
        config,
        lambda: weights,
        setting=setting,
        threads=threads,
        cache=None,
        progress=lambda fraction, what: steps.append(fraction),
    )
    assert steps == pytest.approx([(i + 1) / len(steps) for i in range(len(steps))])
    return packed


def matrix(packed, name):
    """A matrix's weights, without what fills up its tiles."""
    found = packed.matrices[name]
    assert packed.address(found) % 64 == 0
    size = matrix_bytes(found.kind, found.outputs, found.inputs)
    weights = unpack(packed.data[found.offset : found.offset + size], found.kind, found.outputs, found.inputs)
    return weights[: found.outputs, : found.inputs]


def in_turns(gate, up):
    """Sixteen rows of each in turns, with zeros up to a multiple of 16."""
    rows = -(-len(gate) // 16) * 16
    filled = [np.zeros((rows, *gate.shape[1:]), np.float32) for _ in range(2)]
    for target, source in zip(filled, (gate, up), strict=True):
        target[: len(source)] = source
    runs = [array.reshape(rows // 16, 16, *gate.shape[1:]) for array in filled]
    return np.stack(runs, axis=1).reshape(2 * rows, *gate.shape[1:])


def expected(weights, config):
    """Matrices, norms and biases by the names they have when packed."""

    def take(name, suffix="weight"):
        return weights[f"model.{name}.{suffix}"].values()

    result = {"embedding": take("embed_tokens"), "norm": take("norm")}
    if config.tie_word_embeddings:
        result["head"] = result.pop("embedding")
    else:
        result["head"] = weights["lm_head.weight"].values()
    for layer in (f"layers.{index}" for index in range(config.num_layers)):
        result[f"{layer}.input_norm"] = take(f"{layer}.input_layernorm")
        result[f"{layer}.post_norm"] = take(f"{layer}.post_attention_layernorm")
        for norm in ("q_norm", "k_norm") if config.qk_norm else ():
            result[f"{layer}.{norm}"] = take(f"{layer}.self_attn.{norm}")
        for fused, biased, parts, join in (
            ("qkv", config.attention_bias, [f"self_attn.{part}_proj" for part in "qkv"], lambda *x: np.concatenate(x)),
            ("o", config.attention_out_bias, ["self_attn.o_proj"], lambda x: x),
            ("gate_up", config.mlp_bias, ["mlp.gate_proj", "mlp.up_proj"], in_turns),
            ("down", config.mlp_bias, ["mlp.down_proj"], lambda x: x),
        ):
            result[f"{layer}.{fused}"] = join(*(take(f"{layer}.{part}") for part in parts))
            if biased:
                result[f"{layer}.{fused}.bias"] = join(*(take(f"{layer}.{part}", "bias") for part in parts))
    return result


def check(packed, weights, config, tolerance=0.0):
    """Everything is there, once, and where it belongs; matrices differ by `tolerance` at most."""
    wanted = expected(weights, config)
    assert packed.matrices.keys() | packed.vectors.keys() == wanted.keys()
    for name in packed.matrices:
        assert np.abs(matrix(packed, name) - wanted[name]).max() <= tolerance, name
    for name, vector in packed.vectors.items():
        values = packed.floats(vector)
        assert (values[: len(wanted[name])] == wanted[name]).all(), name
        assert (values[len(wanted[name]) :] == 0).all(), name
        assert not name.endswith("bias") or len(values) % 32 == 0


VARIANTS = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "attention_out_bias": True, "mlp_bias": True},
    "norms of heads": {"qk_norm": True},
    "ragged": {"hidden_size": 72, "intermediate_size": 100, "head_dim": 24, "mlp_bias": True, "attention_bias": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_tensor_is_where_it_belongs(variant, threads):
    shape = config(**VARIANTS[variant])
    weights = checkpoint(shape)
    packed = pack(shape, weights.values(), threads=threads)
    check(packed, weights, shape, tolerance=0.02)
    assert {matrix.kind for matrix in packed.matrices.values()} == {Kind.Q8_0}


@pytest.mark.parametrize("encoding", ["Q4_0", "Q4_1", "Q8_0"])
def test_what_is_stored_in_the_kernels_kinds_is_taken_without_loss(encoding):
    shape = config(mlp_bias=True)
    weights = checkpoint(shape, encoding, embed_tokens="Q8_0", lm_head="Q8_0")
    packed = pack(shape, weights.values())
    check(packed, weights, shape)
    assert {matrix.kind for name, matrix in packed.matrices.items() if "layers" in name} == {Kind[encoding]}


@pytest.mark.parametrize("encoding", ["F64", "Q5_0", "Q5_1"])
def test_what_the_kernels_do_not_know_is_made_floats_before(encoding):
    shape = config()
    weights = checkpoint(shape, encoding)
    check(pack(shape, weights.values()), weights, shape, tolerance=0.02)


@pytest.mark.parametrize("variant", ["tied", "ragged"])
@pytest.mark.parametrize("encoding", ["F64", "F32", "Q8_0", "Q4_0", "Q5_0"])
@pytest.mark.parametrize(("setting", "tolerance"), [("f32", 0.0), ("bf16", 0.02)])
def test_what_is_not_quantised(variant, encoding, setting, tolerance):
    shape = config(**VARIANTS[variant] | {"hidden_size": 64, "intermediate_size": 96})
    weights = checkpoint(shape, encoding)
    packed = pack(shape, weights.values(), setting)
    check(packed, weights, shape, tolerance)
    assert {matrix.kind for matrix in packed.matrices.values()} == {Kind[setting.upper()]}


@pytest.mark.parametrize("setting", ["auto", "w4"])
def test_parts_of_4_bits_of_both_kinds_are_put_together_without_loss(setting):
    shape = config()
    weights = checkpoint(shape, "Q4_0", k_proj="Q4_1", up_proj="Q4_1", embed_tokens="Q8_0", lm_head="Q8_0")
    packed = pack(shape, weights.values(), setting)
    check(packed, weights, shape)
    kinds = [packed.matrices[f"layers.1.{name}"].kind.name for name in ("qkv", "o", "gate_up", "down")]
    assert kinds == ["Q4_1", "Q4_0", "Q4_1", "Q4_0"]


def test_tensors_may_come_in_any_order_and_are_cut_for_threads(monkeypatch):
    monkeypatch.setattr(packing, "_WEIGHTS_AT_A_TIME", 1500)
    shape = config(intermediate_size=200, mlp_bias=True)
    weights = checkpoint(shape)
    check(pack(shape, list(reversed(weights.values()))), weights, shape, tolerance=0.02)


@pytest.mark.parametrize(
    ("encodings", "auto", "w4"),
    [
        ("F32", "Q8_0", "Q4_1"),
        ("Q4_0", "Q4_0", "Q4_0"),
        ("Q4_1", "Q4_1", "Q4_1"),
        ("Q8_0", "Q8_0", "Q4_1"),
        ("Q6_K", "Q8_0", "Q4_1"),
        ("Q4_0 Q4_1", "Q4_1", "Q4_1"),
        ("Q4_0 Q8_0", "Q8_0", "Q4_1"),
        ("Q4_1 Q6_K", "Q8_0", "Q4_1"),
        ("Q8_0 BF16", "Q8_0", "Q4_1"),
    ],
)
def test_kinds(encodings, auto, w4):
    names = [Encoding(encoding) for encoding in encodings.split()]
    kinds = [choose_kind(names, setting, eight_bits=False).name for setting in ("auto", "w4", "w8")]
    assert kinds == [auto, w4, "Q8_0"]
    assert {choose_kind(names, setting, eight_bits=True) for setting in ("auto", "w4", "w8")} == {Kind.Q8_0}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("encoding", ["F32", "Q4_0", "Q4_1"])
def test_output_layer_and_embedding_have_8_bits(encoding, tied):
    shape = config(tie_word_embeddings=tied)
    weights = checkpoint(shape, encoding)
    packed = pack(shape, weights.values(), "w4")
    for name in ("head",) if tied else ("head", "embedding"):
        assert packed.matrices[name].kind == Kind.Q8_0
        assert np.abs(matrix(packed, name) - expected(weights, shape)[name]).max() < 0.02


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("model.layers.1.mlp.up_proj.weight", None, "1 tensors that the model needs are not in a file"),
        ("other", np.zeros(3, np.float32), "'other' does not belong to this model"),
        ("lm_head.weight", np.zeros((50, 32), np.float32), r"\[50, 32\], but the model's configuration asks for"),
    ],
)
def test_what_does_not_fit_the_model_is_said(name, values, words):
    shape = config()
    weights = checkpoint(shape)
    weights.pop(name, None)
    if values is not None:
        weights[name] = encoded(name, values, "F32")
    with pytest.raises(ModelLoadError, match=words):
        pack(shape, weights.values())


@pytest.mark.model
def test_the_demo_model_is_taken_without_loss():
    parts = load_parts(resolve_model("smollm2"))
    weights = {weight.name: weight for weight in parts.plain.weights()}
    packed = pack(parts.config, weights.values())
    for layer in (0, 29):
        q, k, v = (weights[f"model.layers.{layer}.self_attn.{part}_proj.weight"].values() for part in "qkv")
        assert (matrix(packed, f"layers.{layer}.qkv") == np.concatenate([q, k, v])).all()
        gate, up = (weights[f"model.layers.{layer}.mlp.{part}_proj.weight"].values() for part in ("gate", "up"))
        assert (matrix(packed, f"layers.{layer}.gate_up") == in_turns(gate, up)).all()
    kinds = [packed.matrices[name].kind.name for name in ("head", "layers.3.down")]
    assert kinds == ["Q8_0", "Q4_1"]


def test_a_model_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(native, "available_memory", lambda: 50_000)
    shape = config()
    with pytest.raises(MemoryError, match=r"the weights take 0\.\d\d GiB, but only 0\.00 GiB of memory are available"):
        pack(shape, checkpoint(shape).values())


def test_a_cache_is_used_if_there_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SLOW", -1.0)
    shape, path = config(), tmp_path / "a file"
    path.write_bytes(b"a checkpoint")
    os.utime(path, (10**9, 10**9))
    weights = {
        encoding: [replace(weight, file=str(path)) for weight in checkpoint(shape, encoding).values()]
        for encoding in ("Q4_0", "Q4_1")
    }
    steps = []

    def load(encoding, setting):
        options = {"setting": setting, "threads": 1, "cache": tmp_path / "cache"}
        steps.clear()
        packed = load_weights(shape, lambda: weights[encoding], progress=lambda *step: steps.append(step), **options)
        return packed.data.tobytes(), len(steps) > 0

    first, was_packed = load("Q4_0", "auto")
    assert was_packed
    assert load("Q4_0", "auto") == (first, False)
    assert load("Q4_0", "w8")[1]
    assert load("Q4_1", "auto")[1]
    assert load("Q4_0", "auto") == (first, False)


def test_it_needs_no_torch():
    program = "import sys, corelm_cpu.packed; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
