import numpy as np
import pytest
import torch
from corelm_gpu.kernels import highest
from corelm_gpu.kernels.sample import pack_parameters, sample
from corelm_torch import sampler
from corelm_torch.details import Details
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
    {"temperature": 1.5, "top_k": 60},
    {"temperature": 1.0, "top_p": 0.7},
    {"temperature": 1.0, "top_p": 0.05},
    {"temperature": 2.0, "top_p": 0.999},
    {"temperature": 0.8, "min_p": 0.2},
    {"temperature": 2.0, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.0, "top_p": 0.9, "min_p": 0.3},
    {"temperature": 1.0, "top_k": 1},
]


def draw(logits, rows, numbers=None):
    """What the kernel draws with the parameters of the host's sampler, and which rows it says are empty."""
    details = Details(indices=np.arange(len(logits)), sampling=rows, edits=(), processing=[])
    packed = pack_parameters(details, len(logits))
    if numbers is not None:
        packed[:, 4] = np.array(numbers, np.float32).view(np.int32)
    outcomes = torch.full((2, len(logits)), -7, dtype=torch.int64, device=DEVICE)
    sample(torch.from_numpy(logits).to(DEVICE), torch.from_numpy(packed).to(DEVICE), outcomes).run()
    return outcomes.cpu().numpy()


def table(params, count):
    rows = SamplingRows.zeros(count)
    for row in range(count):
        rows.set(row, SamplingParams(seed=1000 + row, **params))
    return rows


def possible(logits, rows, monkeypatch):
    """What the host draws with numbers that differ by rounding."""
    draws = []
    for shift in (-ROUNDING, 0.0, ROUNDING):
        monkeypatch.setattr(sampler, "uniform", lambda *key, shift=shift: np.clip(uniform(*key) + shift, 0, 1 - 1e-9))
        draws.append(host_sample(logits, rows))
    return [set(column) for column in np.transpose(draws).tolist()]


@pytest.mark.parametrize(("vocab_size", "chunk"), [(50, 64), (5003, 8192), (1003, 128)])
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_draws_are_those_of_the_host(params, vocab_size, chunk, monkeypatch):
    monkeypatch.setattr(highest, "CHUNK", chunk)
    generator = np.random.default_rng()
    logits = (generator.standard_normal((3, vocab_size)) * 3).astype(np.float32)
    rows = table(params, 3)
    wanted = possible(logits, rows, monkeypatch)
    found = draw(logits, rows)[0]
    assert all(token in tokens for token, tokens in zip(found, wanted, strict=True)), wanted


def test_every_token_has_its_share_of_the_numbers():
    """Numbers at even distances, and the last one before 1, meet tokens as often as these are probable."""
    weights = np.array([3, 0, 1, 6, 0, 2], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.tile(np.log(weights), (61, 1))
    numbers = np.append((np.arange(60) + 0.5) / 60, 1 - 2.0**-48)
    tokens, _ = draw(logits, table({"temperature": 1.0}, 61), numbers)
    assert np.bincount(tokens[:-1], minlength=6).tolist() == (weights * 5).tolist()
    assert tokens.tolist() == sorted(tokens.tolist())


def test_tokens_as_probable_as_the_last_one_kept_are_kept(monkeypatch):
    monkeypatch.setattr(highest, "CHUNK", 16)
    logits = np.full((8, 40), -5.0, np.float32)
    logits[:, 10:18] = 1.0
    found = draw(logits, table({"temperature": 1.0, "top_k": 2}, 8), np.arange(8) / 8)[0]
    assert found.tolist() == list(range(10, 18))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_finite_maximum_and_masked_ones(temperature):
    logits = np.zeros((4, 300), np.float32)
    logits[0, 7] = np.nan
    logits[1, 8] = np.inf
    logits[2] = -np.inf
    logits[3] = -np.inf
    logits[3, 255] = -3.0
    tokens, empty = draw(logits, table({"temperature": temperature}, 4))
    assert tokens.tolist() == [-1, -1, -1, 255]
    assert empty.tolist() == [0, 0, 1, 0]


def test_of_equal_ones_the_lowest_id_is_the_most_probable():
    logits = np.full((1, 9000), -1.0, np.float32)
    logits[0, [8999, 4500, 77]] = 0.0, 0.0, -0.0
    assert draw(logits, table({"temperature": 0.0}, 1))[0].tolist() == [77]


@pytest.mark.parametrize("options", [{"top_k": 30}, {"top_p": 0.95}, {"top_k": 30, "top_p": 0.95}], ids=str)
def test_few_tokens_are_left_of_a_large_vocabulary(options, monkeypatch):
    """As after the mask of a grammar: fewer than top_k, and fewer than there is room for."""
    monkeypatch.setattr(highest, "CHUNK", 64)
    logits = np.full((4, 200), -np.inf, np.float32)
    logits[:, [3, 100, 199]] = 1.0, 2.0, 0.5
    found = draw(logits, table({"temperature": 1.0} | options, 4), [0.0, 0.2, 0.3, 0.99])[0]
    assert found.tolist() == [3, 3, 100, 199]


@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.5}], ids=str)
def test_logits_of_any_size(options):
    logits = np.array([[-3e38, 3e38, 1.0], [1e-40, -1e-40, 0.0], [-3e38, -3.1e38, -3e38]], np.float32)
    with np.errstate(over="ignore"):
        tokens = draw(logits, table({"temperature": 1e-5} | options, 3), [0.9, 0.0, 0.9])[0]
    assert tokens.tolist() == [1, 0, 2]
