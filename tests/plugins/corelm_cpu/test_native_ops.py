"""PyTorch with the attention of the native kernels: what PyTorch alone computes, whatever happens to the blocks."""

import msgspec
import pytest
import torch
from corelm_cpu.kernels import KernelsMissing, kernels_name
from corelm_cpu.native_ops import NativeOps
from corelm_cpu.ops import FastOps, InvariantOps
from corelm_cpu.settings import CpuSettings
from levels import needs_kernels

BFLOAT16 = {"dtype": "bfloat16"}
WHY = "the layers of llama are its plugin's"
TORCH = {"dtype": "bfloat16", "settings": CpuSettings(kernels="torch", threads=1)}


@pytest.fixture(params=[1, 3])
def mixed(drive, plugins_layers, request):
    """Make a driver with native attention."""
    before = torch.get_num_threads()
    yield lambda name, **options: drive(name, **BFLOAT16 | {"settings": CpuSettings(threads=request.param)} | options)
    torch.set_num_threads(before)


@needs_kernels
def test_logits_equal_those_of_pytorch(drive, mixed, prompt, model_name):
    prompts = [prompt(length, length) for length in (1, 20, 33)]
    for block_size, chunk in ((4, 19), (16, 1000), (5, 1)):
        ours = mixed(model_name, block_size=block_size).logits(*prompts, chunk=chunk)
        theirs = drive(model_name, block_size=block_size, **TORCH).logits(*prompts, chunk=chunk)
        for actual, expected in zip(ours, theirs, strict=True):
            assert (actual - expected).norm() / expected.norm() < 0.05


@needs_kernels
def test_greedy_tokens_differ_only_at_near_ties(drive, mixed, prompt):
    """Where the two part, PyTorch's logits of both tokens are close."""
    torch_driver, native_driver = drive("even widths", **TORCH), mixed("even widths")
    prompts = [prompt(length, length) for length in (3, 17, 40)]
    ours, theirs = (driver.generate(*prompts, tokens=12) for driver in (native_driver, torch_driver))
    for tokens, mine, its in zip(prompts, ours, theirs, strict=True):
        parted = next((i for i in range(12) if mine[i] != its[i]), None)
        if parted is not None:
            logits = torch_driver.logits(tokens + its[:parted])[0][-1]
            assert abs(logits[mine[parted]] - logits[its[parted]]) < 0.05 * logits.abs().max()


@needs_kernels
@pytest.mark.parametrize("shared", [16, 32, 33])
def test_a_prefix_that_others_computed(mixed, prompt, shared):
    driver, tokens = mixed("mistral"), prompt(40)
    whole = driver.logits(tokens)[0]
    first, second = driver.start(tokens), driver.start(tokens)
    driver.step(driver.slice(first.seq_id, 0, shared, sample=False), started=[first])
    begin = shared // 16 * 16
    driver.blocks[second.seq_id] = known = driver.blocks[first.seq_id][: shared // 16]
    piece = driver.slice(second.seq_id, begin, 40 - begin)
    whole_table = tuple(known)  # now with the blocks of the slice
    driver.step(msgspec.structs.replace(piece, new_block_ids=whole_table), started=[second])
    difference = driver.executor.recorded[-1] - whole[-1]
    assert difference.norm() / whole[-1].norm() < 0.02


@needs_kernels
@pytest.mark.usefixtures("plugins_layers")
def test_the_banner_names_the_kernels(drive):
    driver = drive("llama", **BFLOAT16)
    assert driver.info.details["kernels"] == f"torch, attention {kernels_name()} ({WHY})"
    assert isinstance(driver.executor._runner._ops, NativeOps)


def test_the_setting_torch(drive):
    driver = drive("llama", **TORCH)
    assert driver.info.details["kernels"] == "torch (cpu.kernels is torch)"
    assert isinstance(driver.executor._runner._ops, FastOps)


@needs_kernels
@pytest.mark.usefixtures("plugins_layers")
def test_float32_stays_exact(drive):
    driver = drive("llama")
    assert driver.info.details["kernels"] == f"torch ({WHY})"
    assert isinstance(driver.executor._runner._ops, InvariantOps)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (None, "", "they were not built"),
        ("_kernels.txt", "no C++ compiler was found\n", "no C\\+\\+ compiler was found"),
        ("_kernels.so", "not a library", "their library cannot be loaded"),
    ],
)
def test_without_the_library_pytorch_computes(drive, prompt, no_library, file, text, words):
    if file:
        (no_library / file).write_text(text)
    driver = drive("llama", **BFLOAT16)
    assert isinstance(driver.executor._runner._ops, FastOps)
    kernels_line = driver.info.details["kernels"]
    assert kernels_line.startswith("torch (")
    with pytest.raises(KernelsMissing, match=words):
        kernels_name()
    assert len(driver.generate(prompt(5), tokens=2)[0]) == 2
