import numpy as np
import pytest
import torch
from corelm_gpu.kernels.sample import sample
from corelm_torch import sampler
from corelm_torch.sampler import SamplingRows, uniform
from corelm_torch.sampler import sample as host_sample
from gpu_kernels import DEVICE

from corelm.api import SamplingParams

ROUNDING = 1e-5
"""How far the kernel's sums in float32 may lie from the host's, as a share of the total."""
PARAMS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.3},
    {"temperature": 1.5, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.7},
    {"temperature": 1.0, "top_p": 0.05},
    {"temperature": 0.8, "min_p": 0.2},
    {"temperature": 2.0, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.0, "top_k": 1},
]


def draw(logits, rows):
    """What the kernel draws with the parameters of the host's sampler."""
    tokens = torch.full((len(logits),), -7, dtype=torch.int64, device=DEVICE)

    def column(values, dtype):
        return torch.tensor(values, dtype=dtype, device=DEVICE)

    sample(
        torch.from_numpy(logits).to(DEVICE),
        column(rows.temperature, torch.float32),
        column(rows.top_k, torch.int32),
        column(rows.top_p, torch.float32),
        column(rows.min_p, torch.float32),
        column(uniform(rows.seed, rows.index), torch.float32),
        tokens,
    ).run()
    return tokens.cpu().numpy()


def table(params, count):
    rows = SamplingRows.zeros(count)
    for row in range(count):
        rows.set(row, SamplingParams(seed=1000 + row, **params))
    return rows


@pytest.mark.parametrize("vocab_size", [50, 5003])
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_draws_are_those_of_the_host(params, vocab_size, monkeypatch):
    generator = np.random.default_rng()
    logits = (generator.standard_normal((3, vocab_size)) * 3).astype(np.float32)
    rows = table(params, 3)
    possible = []
    for shift in (-ROUNDING, 0.0, ROUNDING):
        monkeypatch.setattr(sampler, "uniform", lambda *key, shift=shift: np.clip(uniform(*key) + shift, 0, 1 - 1e-9))
        possible.append(host_sample(logits, rows))
    found = draw(logits, rows)
    assert all(token in column for token, column in zip(found, np.transpose(possible), strict=True)), possible


def test_tokens_as_probable_as_the_last_one_kept_are_kept():
    logits = np.full((16, 100), -5.0, np.float32)
    logits[:, 10:20] = 1.0
    found = draw(logits, table({"temperature": 1.0, "top_k": 2}, 16))
    assert set(found.tolist()) <= set(range(10, 20))
    assert len(set(found.tolist())) > 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_finite_maximum_and_masked_ones(temperature):
    logits = np.zeros((4, 300), np.float32)
    logits[0, 7] = np.nan
    logits[1, 8] = np.inf
    logits[2] = -np.inf
    logits[3] = -np.inf
    logits[3, 255] = -3.0
    assert draw(logits, table({"temperature": temperature}, 4)).tolist() == [-1, -1, -1, 255]


def test_of_equal_ones_the_lowest_id_is_the_most_probable():
    logits = np.zeros((1, 9000), np.float32)
    logits[0, [8999, 4500, 77]] = 2.0
    assert draw(logits, table({"temperature": 0.0}, 1)).tolist() == [77]
