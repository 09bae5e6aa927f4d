"""Models that run through transformers' own modules compute what transformers computes."""

import re
from pathlib import Path

import numpy as np
import pytest
from architectures import LONG_ROPE, RUNNING, SIZES, VOCABULARY, make
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, Phi3Config

from corelm.api import SequenceSlice

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "architectures.md"
LENGTHS = (1, 20, 37)
BLOCK = 4


def prompt(length: int) -> list[int]:
    return np.random.default_rng(length).integers(3, VOCABULARY, length).tolist()


@pytest.fixture
def drive(driver_class):
    """Make a driver of a checkpoint."""
    drivers = []

    def start(checkpoint, **options):
        drivers.append(driver_class(checkpoint.resolved, block_size=BLOCK, **options))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.executor.shutdown()


def continue_cached(driver, tokens: list[int], cached: list[int], start: int, count: int) -> list[int]:
    """Generate after `tokens`, of which the blocks `cached` hold the first ones, up to `start`, from elsewhere."""
    started = driver.start(tokens)
    piece = driver.slice(started.seq_id, start, len(tokens) - start)
    mine = piece.new_block_ids[len(cached) :]
    driver.blocks[started.seq_id][: len(cached)] = cached
    first = SequenceSlice(
        seq_id=started.seq_id, start=start, num_tokens=piece.num_tokens, new_block_ids=(*cached, *mine), sample=True
    )
    output = list(driver.step(first, started=[started]).token_ids[0])
    while len(output) < count:
        output += driver.step(driver.slice(started.seq_id, len(tokens) + len(output) - 1, 1)).token_ids[0]
    return output


@pytest.mark.parametrize("name", RUNNING)
def test_outputs_are_those_of_transformers(drive, tmp_path, name):
    checkpoint = make(RUNNING[name](), tmp_path / "model")
    driver = drive(checkpoint)
    assert driver.info.details["kernels"].endswith(
        f"(the layers of {type(checkpoint.reference).__name__} are transformers')"
    )
    prompts = [prompt(length) for length in LENGTHS]
    for tokens, logits in zip(prompts, driver.logits(*prompts, chunk=19), strict=True):
        expected = checkpoint.logits(tokens)
        assert (logits - expected).abs().max() <= 2e-5 * expected.abs().max()
    wanted = [checkpoint.generate(tokens, 6) for tokens in prompts]
    assert driver.generate(*prompts, tokens=6) == wanted

    holder = driver.start(prompts[2])
    driver.step(driver.slice(holder.seq_id, 0, LENGTHS[2]), started=[holder])
    cached = driver.blocks[holder.seq_id][: 20 // BLOCK]
    assert continue_cached(driver, prompts[2], cached, 20, 6) == wanted[2]


def test_bfloat16_is_close(drive, tmp_path):
    """With native attention; where scores have a softcap, with PyTorch's."""
    for name, kernels in (("gpt2", "attention "), ("gemma2", "torch (the layers")):
        checkpoint = make(RUNNING[name](), tmp_path / name)
        driver = drive(checkpoint, dtype="bfloat16")
        assert kernels in driver.info.details["kernels"]
        tokens = prompt(37)
        [logits] = driver.logits(tokens, chunk=19)
        expected = checkpoint.logits(tokens)
        assert (logits - expected).norm() <= 0.05 * expected.norm()


@pytest.mark.parametrize("max_model_len", [32, 128])
def test_longrope_does_not_depend_on_neighbours(drive, tmp_path, max_model_len):
    """Frequencies are chosen for the longest context that there may be, not for the longest that there is."""
    checkpoint = make(Phi3Config(**SIZES, rope_parameters=LONG_ROPE), tmp_path / "model")
    driver = drive(checkpoint, max_model_len=max_model_len)
    length = 20 if max_model_len == 32 else 40  # transformers chooses by the length alone
    [logits] = driver.logits(prompt(length))
    expected = checkpoint.logits(prompt(length))
    assert (logits - expected).abs().max() <= 2e-5 * expected.abs().max()
    [alone] = driver.logits(prompt(5))
    beside, _ = driver.logits(prompt(5), prompt(max_model_len))
    assert (alone - beside).abs().max() <= 2e-5 * alone.abs().max()


def test_the_guide_lists_what_is_tried_here():
    listed = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(), re.MULTILINE)
    tried = {MODEL_FOR_CAUSAL_LM_MAPPING[type(make_config())].__name__ for make_config in RUNNING.values()}
    assert sorted(listed) == sorted(tried)
