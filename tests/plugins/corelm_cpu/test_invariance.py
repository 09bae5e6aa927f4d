"""In float32 a token's bits do not depend on its neighbours, the chunks or the blocks."""

import pytest
import torch
import transformers
from corelm_cpu import native_model
from corelm_cpu.native_runner import NativeRunner
from corelm_cpu.settings import CpuSettings
from corelm_cpu.torch_runner import TorchRunner
from levels import AVAILABLE, needs_kernels

from corelm.api import ResolvedModel

LENGTHS = [150, 1, 2, 7, 8, 9, 31, 64, 127, 128, 129, 140]


@pytest.fixture(params=["native", "torch"])
def exact(request, drive):
    """Make a driver for a tiny model in float32."""
    if request.param == "torch":
        request.getfixturevalue("plugins_layers")

    def make(name, **options):
        driver = drive(name, **options)
        native = bool(AVAILABLE) and request.param == "native"
        assert isinstance(driver.executor._runner, NativeRunner if native else TorchRunner)
        return driver

    return make


@pytest.fixture
def alone(exact, prompt, model_name):
    return exact(model_name).logits(prompt(LENGTHS[0], 0))[0]


@pytest.mark.parametrize("batch", [2, 7, 32])
def test_batch_size(exact, prompt, model_name, alone, batch):
    prompts = [prompt(LENGTHS[index % len(LENGTHS)], index) for index in range(batch)]
    assert torch.equal(exact(model_name).logits(*prompts)[0], alone)
    assert torch.equal(exact(model_name).logits(*prompts[::-1])[-1], alone)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_chunks(exact, prompt, model_name, alone, chunk):
    assert torch.equal(exact(model_name).logits(prompt(150, 0), chunk=chunk)[0], alone)
    assert torch.equal(exact(model_name).logits(prompt(90, 1), prompt(150, 0), chunk=chunk)[1], alone)


def test_decoding_equals_recomputing(exact, prompt, model_name):
    driver = exact(model_name)
    tokens = prompt(20)
    start = driver.start(tokens)
    driver.step(driver.slice(start.seq_id, 0, 20), started=[start])
    decoded = [driver.executor.recorded[-1]]
    result = driver.step(driver.slice(start.seq_id, 20, 1))
    for position in range(21, 40):
        decoded.append(driver.executor.recorded[-1])
        result = driver.step(driver.slice(start.seq_id, position, 1))
    assert result.token_ids[0]
    whole = driver.generate(tokens, tokens=20)[0]
    recomputed = driver.logits(tokens + whole[:-1])[0]
    assert torch.equal(torch.stack(decoded), recomputed[19:39])


@needs_kernels
@pytest.mark.parametrize("level", AVAILABLE)
@pytest.mark.parametrize("name", ["mistral", "qwen3"])
def test_levels(drive, prompt, monkeypatch, level, name):
    """Batches, chunks and threads with the kernels of every level, windows and norms of heads."""
    monkeypatch.setattr(native_model, "kernels_name", lambda _: level)
    prompts = [prompt(length, index) for index, length in enumerate((150, 1, 300, 40))]
    alone = drive(name).logits(prompts[0])[0]
    for threads, chunk, block_size in ((1, 1000, 16), (3, 7, 16), (2, 64, 5)):
        settings = CpuSettings(threads=threads)
        found = drive(name, block_size=block_size, settings=settings).logits(*prompts, chunk=chunk)[0]
        if block_size == 16:
            assert torch.equal(found, alone)
        else:
            again = drive(name, block_size=block_size).logits(prompts[0])[0]
            assert torch.equal(found, again)


@pytest.mark.parametrize("who", ["native", "torch"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_wide_model(request, driver_class, tmp_path, who, threads):
    """Sizes at which matrix libraries split their work between threads."""
    if who == "torch":
        request.getfixturevalue("plugins_layers")
    torch.manual_seed(1)
    sizes = {"hidden_size": 520, "intermediate_size": 1100, "num_hidden_layers": 1, "vocab_size": 700}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=2, head_dim=64)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    before = torch.get_num_threads()
    try:
        driver = driver_class(
            ResolvedModel(name="wide", path=tmp_path, format="huggingface"), settings=CpuSettings(threads=threads)
        )
        prompts = [torch.randint(0, 700, (length,)).tolist() for length in (300, 40, 5, 1, 77)]
        alone = driver.logits(prompts[0])[0]
        assert torch.equal(driver.logits(*prompts)[0], alone)
        assert torch.equal(driver.logits(*prompts[::-1], chunk=23)[-1], alone)
    finally:
        torch.set_num_threads(before)
