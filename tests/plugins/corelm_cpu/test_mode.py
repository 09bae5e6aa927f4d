"""What computes a model: by the settings, the data type asked for, the model and the machine."""

from dataclasses import replace

import pytest
import torch
from corelm_cpu.kernels import kernels_name
from corelm_cpu.mode import NativeMode, TorchMode, choose_mode
from corelm_cpu.native_runner import NativeRunner
from corelm_cpu.packed import native as packed_native
from corelm_cpu.settings import CpuSettings
from corelm_cpu.torch_runner import TorchRunner
from corelm_torch.parts import load_parts
from levels import needs_kernels
from test_more_models import SIZES, more_models, site, tiny  # noqa: F401

from corelm.api import ModelLoadError


@pytest.fixture
def parts(tiny_model):
    return load_parts(tiny_model("llama").resolved)


BFLOAT16, FLOAT32 = NativeMode(weights="bf16", kv="bf16"), NativeMode(weights="f32", kv="f32")
TABLE = {
    ("auto", "auto"): NativeMode(weights="auto", kv="int8"),
    ("auto", "w4"): NativeMode(weights="w4", kv="int8"),
    ("auto", "w8"): NativeMode(weights="w8", kv="int8"),
    ("auto", "bf16"): BFLOAT16,
    ("auto", "f32"): FLOAT32,
    ("bfloat16", "auto"): BFLOAT16,
    ("bfloat16", "w4"): NativeMode(weights="w4", kv="int8"),
    ("bfloat16", "w8"): NativeMode(weights="w8", kv="int8"),
    ("bfloat16", "bf16"): BFLOAT16,
    ("bfloat16", "f32"): "cpu.weights f32 does not go with dtype bfloat16, but auto, w4, w8, bf16 would",
    ("float32", "auto"): FLOAT32,
    ("float32", "w4"): "cpu.weights w4 does not go with dtype float32, but auto, f32 would",
    ("float32", "w8"): "cpu.weights w8 does not go with dtype float32, but auto, f32 would",
    ("float32", "bf16"): "cpu.weights bf16 does not go with dtype float32, but auto, f32 would",
    ("float32", "f32"): FLOAT32,
    ("float16", "auto"): "The CPU executor cannot compute in float16; use auto, bfloat16, float32",
}


def check_mode(expected, dtype, weights, parts, **settings):
    """`expected` is a mode or what the refusal says."""
    settings = CpuSettings(weights=weights, **settings)
    if isinstance(expected, str):
        with pytest.raises(ModelLoadError, match=expected):
            choose_mode(settings, dtype, parts)
    else:
        assert choose_mode(settings, dtype, parts) == expected


@needs_kernels
@pytest.mark.parametrize(("dtype", "weights"), TABLE)
def test_where_the_kernels_can(parts, dtype, weights):
    check_mode(TABLE[dtype, weights], dtype, weights, parts)


@needs_kernels
@pytest.mark.parametrize("kv", ["bf16", "int8", "f32"])
@pytest.mark.parametrize("weights", ["auto", "w8", "bf16", "f32"])
def test_every_cache_goes_with_all_weights(parts, weights, kv):
    check_mode(NativeMode(weights=weights, kv=kv), "auto", weights, parts, kv=kv)


@pytest.mark.parametrize("kv", ["bf16", "int8", "f32"])
def test_float32_needs_a_cache_of_float32(parts, kv):
    refusal = f"cpu.kv {kv} does not go with dtype float32, but auto, f32 would"
    check_mode(FLOAT32 if kv == "f32" else refusal, "float32", "auto", parts, kv=kv)


def test_what_is_called_float32():
    assert NativeMode(weights="f32", kv="f32").dtype == "float32"
    for weights, kv in (("f32", "bf16"), ("w8", "f32"), ("bf16", "bf16")):
        assert NativeMode(weights=weights, kv=kv).dtype == "bfloat16"


TORCH = {"auto": "auto", "bf16": "bfloat16", "f32": "float32"}


def without_kernels(why):
    """The table where there are none: PyTorch does it, and what needs them is refused."""
    table = dict(TABLE)
    for key, mode in TABLE.items():
        if isinstance(mode, NativeMode):
            refusal = f"cpu.weights {mode.weights} needs the native kernels: {why}"
            table[key] = TorchMode(dtype=TORCH[mode.weights], why=why) if mode.weights in TORCH else refusal
    return table


def test_where_the_setting_forbids_the_kernels(parts):
    for (dtype, weights), expected in without_kernels("cpu.kernels is torch").items():
        check_mode(expected, dtype, weights, parts, kernels="torch")


def test_pytorch_has_no_mixed_caches(parts):
    refusal = "cpu.kv f32 with cpu.weights bf16 needs the native kernels: cpu.kernels is torch"
    check_mode(refusal, "auto", "bf16", parts, kernels="torch", kv="f32")
    check_mode(TorchMode(dtype="float32", why="cpu.kernels is torch"), "auto", "f32", parts, kernels="torch", kv="f32")


def test_where_a_plugin_made_the_layers(parts):
    for (dtype, weights), expected in without_kernels("the layers of llama are its plugin's").items():
        check_mode(expected, dtype, weights, replace(parts, plain=None))


@needs_kernels
def test_where_the_kernels_cannot_do_the_heads(parts):
    odd = replace(parts, config=replace(parts.config, head_dim=20))
    for (dtype, weights), expected in without_kernels("they need a head_dim in multiples of 8, not 20").items():
        check_mode(expected, dtype, weights, odd)


def test_where_the_library_is_missing(parts, no_library):
    (no_library / "_kernels.txt").write_text("no compiler\n")
    for (dtype, weights), expected in without_kernels("no compiler").items():
        check_mode(expected, dtype, weights, parts)


def test_without_the_library_torch_runs_the_model(drive, prompt, no_library):
    driver = drive("llama", dtype="auto")
    assert isinstance(driver.executor._runner, TorchRunner)
    assert "they were not built" in driver.info.details["kernels"]
    assert len(driver.generate(prompt(5), tokens=2)[0]) == 2


@needs_kernels
@pytest.mark.parametrize(
    ("weights", "kinds", "kv"),
    [
        ("auto", "Q8_0; ", "int8"),
        ("w8", "Q8_0; ", "int8"),
        ("w4", "Q4_1, Q8_0; ", "int8"),
        ("bf16", "BF16; ", "bf16"),
        ("f32", "F32; ", "f32"),
    ],
)
def test_the_banner(drive, weights, kinds, kv):
    info = drive("even widths", dtype="auto", settings=CpuSettings(threads=2, weights=weights)).info
    assert (info.details["threads"], info.details["kernels"], info.details["KV"]) == ("2", kernels_name(), kv)
    assert info.details["weights"].startswith(kinds)
    assert info.dtype == ("float32" if weights == "f32" else "bfloat16")


@needs_kernels
@pytest.mark.usefixtures("more_models")
@pytest.mark.parametrize(("name", "runner"), [("olmo2", TorchRunner), ("phi3", NativeRunner)])
def test_plugins_models_run_natively_if_their_layers_are_plain(
    driver_class, prompt, tmp_path, monkeypatch, name, runner
):
    monkeypatch.setitem(SIZES, "hidden_size", 96)  # heads of 16
    model, reference = tiny(name, tmp_path / "model")
    driver, tokens = driver_class(model, dtype="auto", settings=CpuSettings(threads=1)), prompt(30)
    assert isinstance(driver.executor._runner, runner)
    said = "the layers of olmo2 are its plugin's" in driver.info.details["kernels"]
    assert said == (runner is TorchRunner)
    with torch.no_grad():
        expected = reference(torch.tensor([tokens])).logits[0]
    assert (driver.logits(tokens)[0] - expected).norm() / expected.norm() < 0.1
    driver.executor.shutdown()


@needs_kernels
def test_what_does_not_fit_into_memory_is_refused(native, monkeypatch):
    with pytest.raises(ModelLoadError, match=r"The weights take .*GiB and a KV cache .*GiB, but only .*GiB"):
        native("llama", kv_cache_tokens=10**13)
    monkeypatch.setattr(packed_native, "available_memory", lambda: 1000)
    with pytest.raises(ModelLoadError, match=r"the weights take .* GiB, but only 0\.00 GiB of memory are available"):
        native("llama")
