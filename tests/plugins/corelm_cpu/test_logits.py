"""The executor computes what transformers computes."""

import pytest
import torch


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert (actual - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.fixture(params=["native", "torch"])
def computed(request, drive):
    """Make a driver for a tiny model that the kernels compute, or PyTorch."""
    if request.param == "torch":
        request.getfixturevalue("plugins_layers")
    return drive


def test_logits_equal_transformers(computed, tiny_model, prompt, model_name):
    tokens = prompt(37, 1)
    assert_close(computed(model_name).logits(tokens)[0], tiny_model(model_name).logits(tokens))


def test_mixed_and_chunked_batches_equal_transformers(computed, tiny_model, prompt, model_name):
    prompts = [prompt(length, length) for length in (1, 20, 33, 150)]
    results = computed(model_name, block_size=4).logits(*prompts, chunk=19)
    for tokens, logits in zip(prompts, results, strict=True):
        assert_close(logits, tiny_model(model_name).logits(tokens))


def test_bfloat16_is_close_to_transformers(computed, tiny_model, prompt, model_name):
    tokens = prompt(300, 2)
    expected = tiny_model(model_name).logits(tokens)
    driver = computed(model_name, dtype="bfloat16")
    for chunk in (1000, 1):
        actual = driver.logits(tokens, prompt(9), prompt(290), chunk=chunk)[0]
        error = (actual - expected).norm() / expected.norm()
        assert error < 0.05


@pytest.mark.parametrize("block_size", [1, 5, 16, 512])
def test_any_block_size(computed, tiny_model, prompt, block_size):
    tokens = prompt(45)
    expected = tiny_model("mistral").logits(tokens)
    assert_close(computed("mistral", block_size=block_size).logits(tokens, chunk=7)[0], expected)


def test_greedy_generation_equals_transformers(computed, tiny_model, prompt, model_name):
    prompts = [prompt(length, length) for length in (3, 17, 40)]
    outputs = computed(model_name).generate(*prompts, tokens=12)
    for tokens, output in zip(prompts, outputs, strict=True):
        reference = tiny_model(model_name).reference
        expected = reference.generate(
            torch.tensor([tokens]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert output == expected[0, len(tokens) :].tolist()
