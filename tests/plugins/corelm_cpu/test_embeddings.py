"""Embeddings of the CPU executor beside the hidden states of transformers."""

import math

import numpy as np
import pytest
import torch
from corelm_cpu.settings import CpuSettings
from corelm_torch.step import NO_EMBEDDING
from levels import needs_kernels

from corelm.api import SequenceSlice

LENGTHS = (9, 1, 16, 40, 33)


def reference(tiny_model, name, tokens):
    """transformers' last hidden state of the last token, divided by its length."""
    with torch.no_grad():
        state = tiny_model(name).reference.model(torch.tensor([tokens])).last_hidden_state[0, -1].double().numpy()
    return state / np.linalg.norm(state)


def embed(driver, *prompts, chunk=10**6):
    """The embeddings of prompts that are computed together, in chunks of at most so many tokens."""
    starts = [driver.start(prompt, embed=True) for prompt in prompts]
    pairs = list(zip([start.seq_id for start in starts], prompts, strict=True))
    found, started = {}, starts
    for first in range(0, max(map(len, prompts)), chunk):
        left = [(seq_id, len(prompt) - first) for seq_id, prompt in pairs if len(prompt) > first]
        slices = [driver.slice(seq_id, first, min(chunk, count), sample=False) for seq_id, count in left]
        result = driver.step(*slices, started=started)
        assert result.embeddings.keys() == {seq_id for seq_id, count in left if count <= chunk}
        assert not any(result.token_ids)
        found |= result.embeddings
        started = ()
    driver.step(released=[seq_id for seq_id, _ in pairs])
    return [np.frombuffer(found[seq_id], "<f4") for seq_id, _ in pairs]


def test_they_equal_those_of_transformers(drive, tiny_model, prompt, model_name):
    """In float32: alone, together, in chunks, and each time the same bits."""
    driver = drive(model_name)
    prompts = [prompt(length, length) for length in LENGTHS]
    alone = [embed(driver, tokens)[0] for tokens in prompts]
    for tokens, vector in zip(prompts, alone, strict=True):
        assert len(vector) == driver.info.embedding_size
        assert np.abs(vector - reference(tiny_model, model_name, tokens)).max() < 1e-4
    for chunk in (10**6, 7):
        assert np.array_equal(embed(driver, *prompts, chunk=chunk), alone)


def test_beside_sequences_that_are_sampled_and_scored(drive, prompt):
    driver = drive("llama")
    tokens, other = prompt(9), prompt(12, 1)
    (alone,) = embed(driver, tokens)
    text = driver.generate(other, tokens=1, prompt_logprobs=1)
    starts = [driver.start(other, prompt_logprobs=1), driver.start(tokens, embed=True), driver.start(other)]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids), sample=not start.embed) for start in starts]
    result = driver.step(*slices, started=starts)
    assert result.token_ids == [text[0], [], text[0]]
    assert len(result.prompt_logprobs[starts[0].seq_id]) == 11
    assert result.embeddings == {starts[1].seq_id: alone.tobytes()}


def test_behind_what_the_prefix_cache_has(drive, prompt):
    driver, tokens = drive("llama"), prompt(35)
    (alone,) = embed(driver, tokens)
    parent, child = driver.start(tokens), driver.start(tokens, embed=True)
    driver.step(driver.slice(parent.seq_id, 0, 35), started=[parent])
    blocks = (*driver.blocks[parent.seq_id][:2], driver.free.pop())
    piece = SequenceSlice(seq_id=child.seq_id, start=32, num_tokens=3, new_block_ids=blocks, sample=False)
    result = driver.step(piece, started=[child])
    assert result.embeddings == {child.seq_id: alone.tobytes()}


@needs_kernels
@pytest.mark.parametrize("settings", [{"weights": "w8"}, {"weights": "bf16"}])
def test_rounded_models_are_near(drive, tiny_model, prompt, settings):
    driver = drive("even widths", dtype="auto", settings=CpuSettings(threads=1, **settings))
    prompts = [prompt(length, length) for length in LENGTHS]
    for chunk in (10**6, 7):
        for tokens, vector in zip(prompts, embed(driver, *prompts, chunk=chunk), strict=True):
            assert abs(np.linalg.norm(vector) - 1) < 1e-6
            assert vector @ reference(tiny_model, "even widths", tokens) > 0.98


def test_a_prompt_without_a_finite_state_fails_alone(drive, prompt):
    driver = drive("llama")
    bad, good = [7, 8, 159], [token % 150 for token in prompt(5)]
    driver.spoil(159, math.inf)
    starts = [driver.start(tokens, embed=True) for tokens in (bad, good)]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids), sample=False) for start in starts]
    result = driver.step(*slices, started=starts)
    assert result.errors == {starts[0].seq_id: NO_EMBEDDING}
    assert result.embeddings.keys() == {starts[1].seq_id}
