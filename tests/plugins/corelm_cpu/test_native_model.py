"""Models that the native kernels compute as a whole: what transformers computes, nearly."""

import numpy as np
import pytest
import torch
from corelm_cpu import native_model
from corelm_torch.step import SCORED_ROWS
from levels import every_level, needs_kernels
from rounding import rounded_model
from test_block_operations import RandomEngine

pytestmark = needs_kernels


@pytest.fixture
def rounded(tiny_model):
    """Make a function from a tiny model's name and a prompt to its logits, all rounded as the kernels round."""
    models = {}

    def logits(name, tokens, weights="w8"):
        if (name, weights) not in models:
            models[name, weights] = rounded_model(tiny_model(name).reference, weights)
        with torch.no_grad():
            return models[name, weights](torch.tensor([tokens])).logits[0]

    return logits


def difference(actual, expected):
    """Of logits, relative."""
    return float((actual - expected).norm() / expected.norm())


@pytest.mark.parametrize(("weights", "usual", "most"), [("w8", 1e-5, 0.04), ("bf16", 1e-6, 0.005)])
def test_single_tokens_equal_what_is_rounded_alike(native, rounded, model_name, weights, usual, most):
    """So few that activations are bytes at every level, and without attention, so that nothing else is rounded.

    Now and then an activation lies between two bytes, or two numbers in bfloat16.
    """
    prompts = [[token] for token in range(0, 160, 11)]
    found = native(model_name, weights=weights).logits(*prompts)
    differences = [
        difference(one, rounded(model_name, tokens, weights)) for tokens, one in zip(prompts, found, strict=True)
    ]
    assert np.median(differences) < usual
    assert max(differences) < most


def test_logits_are_near_those_of_transformers(native, tiny_model, rounded, prompt, model_name):
    """Whole and chunked prompts in mixed batches; the last so small that activations are bytes at every level."""
    prompts = [prompt(length, length) for length in (1, 20, 61)]
    for block_size, chunk, threads in ((16, 1000, 1), (4, 13, 3), (5, 5, 2)):
        driver = native(model_name, threads, block_size=block_size)
        for tokens, logits in zip(prompts, driver.logits(*prompts, chunk=chunk), strict=True):
            assert difference(logits, tiny_model(model_name).logits(tokens)) < 0.1
            assert difference(logits, rounded(model_name, tokens)) < (0.04 if chunk == 5 else 0.08)


@every_level
def test_levels(native, rounded, prompt, monkeypatch, level):
    """Windows, norms of heads, biases, heads that do not fill a vector."""
    monkeypatch.setattr(native_model, "kernels_name", lambda _: level)
    prompts = [prompt(length, length) for length in (1, 9, 60)]
    for name in ("mistral", "qwen3", "biases"):
        for tokens, logits in zip(prompts, native(name, 2).logits(*prompts, chunk=5), strict=True):
            assert difference(logits, rounded(name, tokens)) < 0.04


NOT_QUANTISED = {("bf16", "bf16"): 0.04, ("bf16", "int8"): 0.08, ("f32", "int8"): 0.08, ("f32", "f32"): 1e-5}
"""How far logits may be from transformers', by weights and cache."""


@pytest.mark.parametrize(("weights", "kv"), NOT_QUANTISED)
def test_weights_that_are_not_quantised(native, tiny_model, prompt, model_name, weights, kv):
    """Whole and chunked prompts in mixed batches; the last ones of few rows."""
    prompts = [prompt(length, length) for length in (1, 20, 61)]
    driver = native(model_name, 2, kv, weights, block_size=5)
    for chunk in (1000, 13, 1):
        for tokens, logits in zip(prompts, driver.logits(*prompts, chunk=chunk), strict=True):
            assert difference(logits, tiny_model(model_name).logits(tokens)) < NOT_QUANTISED[weights, kv]


@every_level
@pytest.mark.parametrize(("weights", "kv"), NOT_QUANTISED)
def test_levels_with_weights_that_are_not_quantised(native, tiny_model, prompt, monkeypatch, level, weights, kv):
    monkeypatch.setattr(native_model, "kernels_name", lambda _: level)
    prompts = [prompt(length, length) for length in (1, 9, 60)]
    for name in ("mistral", "qwen3", "biases"):
        for tokens, logits in zip(prompts, native(name, 2, kv, weights).logits(*prompts, chunk=5), strict=True):
            assert difference(logits, tiny_model(name).logits(tokens)) < NOT_QUANTISED[weights, kv]


def test_a_cache_of_bytes(native, tiny_model, prompt):
    prompts = [prompt(length, length) for length in (1, 20, 61)]
    for name, block_size, chunk in (("llama", 16, 1000), ("mistral", 5, 7)):
        driver = native(name, 2, kv="int8", block_size=block_size)
        for tokens, logits in zip(prompts, driver.logits(*prompts, chunk=chunk), strict=True):
            assert difference(logits, tiny_model(name).logits(tokens)) < 0.1


class RecordingEngine(RandomEngine):
    """Keeps the logits of everything that was computed, and looks at the tokens that were sampled greedily."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.found = []

    def submit(self, slices, work):
        super().submit(slices, work)
        if not slices:
            return
        rows = self.driver.executor.recorded.split([piece.num_tokens for piece in slices])
        for sequence, piece, logits in zip(work, slices, rows, strict=True):
            self.found.append((sequence, piece.start, logits))


@pytest.mark.parametrize("threads", [1, 3])
def test_random_plans(native, prompt, threads):
    """Whatever happens to a sequence, its logits are nearly those that it gets alone."""
    engine = RecordingEngine(native("llama", threads, kv_cache_tokens=1600, swap_tokens=320), prompt, threads)
    engine.run(30)
    assert min(engine.done_things[thing] for thing in ("fork", "swap", "release")) >= 3
    driver = native("llama")
    alone = {id(sequence): driver.logits(sequence.tokens)[0] for sequence in engine.sequences}
    for sequence, start, logits in engine.found:
        assert difference(logits, alone[id(sequence)][start : start + len(logits)]) < 0.1


@pytest.mark.parametrize("neighbours", [0, 30])
def test_the_best_token_is_that_of_the_highest_logit(native, prompt, neighbours):
    """Sequences come in pairs: of one the best token is asked for, of the other all logits."""
    driver = native("even widths", 3)
    starts = [driver.start(prompt(3, seed)) for seed in range(neighbours)]
    for length in (1, 2, 5):
        starts += [driver.start(prompt(length, length)), driver.start(prompt(length, length), logprobs=3)]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids)) for start in starts]
    detailed, result = starts[neighbours + 1 :: 2], driver.step(*slices, started=starts)
    for _ in range(5):
        tokens = [new[0] for new in result.token_ids[neighbours:]]
        assert tokens[::2] == tokens[1::2]
        assert list(result.logprobs) == [start.seq_id for start in detailed]
        for [score], token in zip(result.logprobs.values(), tokens[1::2], strict=True):
            assert (score.token_id, score.rank, score.top_ids[0]) == (token, 1, token)
        slices = [driver.slice(piece.seq_id, piece.start + piece.num_tokens, 1) for piece in slices]
        result = driver.step(*slices)


def test_greedy_tokens_are_the_best_of_the_logits(native, prompt):
    """So few rows that they are computed alike whether they are sampled or recorded."""
    driver = native("qwen3", 2)
    starts = [driver.start(prompt(length, length)) for length in (4, 1, 7)]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids)) for start in starts]
    result = driver.step(*slices, started=starts)
    for _ in range(20):
        ends = np.cumsum([piece.num_tokens for piece in slices]) - 1
        assert [[token] for token in driver.executor.recorded[ends].argmax(1).tolist()] == result.token_ids
        slices = [driver.slice(piece.seq_id, piece.start + piece.num_tokens, 1) for piece in slices]
        result = driver.step(*slices)


@pytest.mark.parametrize("chunk", [1, 16, 1000])
def test_prompt_logprobs(native, tiny_model, prompt, chunk):
    """More at once than are scored at a time."""
    driver, tokens = native("llama", 2), prompt(2 * SCORED_ROWS + 50)
    start, scores = driver.start(tokens, prompt_logprobs=2), []
    started = [start]
    for first in range(0, len(tokens), chunk):
        count = min(chunk, len(tokens) - first)
        result = driver.step(driver.slice(start.seq_id, first, count, sample=False), started=started)
        found, started = result.prompt_logprobs.get(start.seq_id, []), []
        recorded = torch.log_softmax(driver.executor.recorded, 1)
        assert [score.logprob for score in found] == pytest.approx(
            [float(recorded[i, score.token_id]) for i, score in enumerate(found)], abs=0.5
        )
        scores += found
    assert [score.token_id for score in scores] == tokens[1:]
    expected = torch.log_softmax(tiny_model("llama").logits(tokens), 1)[torch.arange(len(scores)), tokens[1:]]
    assert difference(torch.tensor([score.logprob for score in scores]), expected) < 0.1


def test_buffers_grow_with_the_steps(native, prompt):
    driver, lengths = native("biases", 2), (3, 40, 1, 300, 17, 16)
    for length in lengths:
        assert torch.equal(driver.logits(prompt(length))[0], native("biases", 2).logits(prompt(length))[0])


def test_several_models_at_once_do_not_disturb_each_other(native, prompt):
    names = ("llama", "qwen2", "even widths")
    alone = [native(name, 2).generate(prompt(9), tokens=6) for name in names]
    drivers, known = [native(name, 2) for name in names], [prompt(9) for _ in names]
    starts = [driver.start(tokens) for driver, tokens in zip(drivers, known, strict=True)]
    for count in range(6):
        for driver, tokens, start in zip(drivers, known, starts, strict=True):
            piece = driver.slice(start.seq_id, 8 + count, 1) if count else driver.slice(start.seq_id, 0, 9)
            tokens += driver.step(piece, started=[start] if not count else []).token_ids[0]
    assert [[tokens[9:]] for tokens in known] == alone
