"""Final hidden states of any rows of a native step."""

import numpy as np
import pytest
import torch
from levels import needs_kernels

pytestmark = needs_kernels


def compute(driver, prompts, rows):
    """A step over whole prompts, of whose flattened tokens the hidden states of `rows` are wanted."""
    runner, found = driver.executor._runner, []
    runner.compute = lambda batch: found.append(runner._model.step(batch, *rows)) or found[-1]
    starts = [driver.start(tokens) for tokens in prompts]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids)) for start in starts]
    return found, driver.step(*slices, started=starts)


def states(tiny_model, name, prompts):
    """What transformers has after its last norm, of all prompts one after the other."""
    model = tiny_model(name).reference.model
    with torch.no_grad():
        return torch.cat([model(torch.tensor([tokens])).last_hidden_state[0] for tokens in prompts]).numpy()


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("threads", [1, 3])
def test_they_are_near_those_of_transformers(native, tiny_model, prompt, name, threads):
    """Of rows that are sampled and others, in any order and twice."""
    prompts = [prompt(length, length) for length in (9, 1, 20)]
    rows = np.array([29, 3, 9, 8, 3, 0], np.int64)
    [outputs], result = compute(native(name, threads), prompts, [rows])
    expected = states(tiny_model, name, prompts)[rows]
    assert outputs.hidden.shape == expected.shape
    assert np.linalg.norm(outputs.hidden - expected) < 0.1 * np.linalg.norm(expected)
    assert (outputs.hidden[1] == outputs.hidden[4]).all()
    assert result.token_ids == compute(native(name, threads), prompts, [])[1].token_ids


def test_by_default_there_are_none(native, prompt):
    [outputs], _ = compute(native("llama"), [prompt(5)], [])
    assert outputs.hidden.shape == (0, 72)


def test_they_outlive_the_next_step(native, prompt):
    driver, rows = native("llama"), np.arange(4)
    [first], _ = compute(driver, [prompt(4)], [rows])
    kept = first.hidden.copy()
    compute(driver, [prompt(6, 1)], [rows])
    assert (first.hidden == kept).all()
