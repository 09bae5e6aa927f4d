"""Sampling, row by row."""

from typing import Any

import numpy as np
import pytest
import torch
from corelm_torch.sampler import SamplingRows, sample, uniform

from corelm.api import SamplingParams

LOGITS = torch.tensor([2.0, 1.0, 0.0, 3.0, -1.0, 0.5])


def rows_of(*params: dict[str, Any], index: int = 0) -> SamplingRows:
    rows = SamplingRows.zeros(len(params))
    for row, options in enumerate(params):
        rows.set(row, SamplingParams(**{"seed": 0} | options))
    return rows.take(np.arange(len(params)), np.full(len(params), index))


def draw_many(logits: torch.Tensor, draws: int = 4000, **options: Any) -> np.ndarray:
    """How often each token comes, over `draws` consecutive output tokens of one request."""
    rows = rows_of(*[options] * draws).take(np.arange(draws), np.arange(draws))
    token_ids, failed = sample(logits.expand(draws, -1), rows)
    assert not failed.any()
    return np.bincount(token_ids, minlength=logits.numel())


def assert_follows(counts: np.ndarray, probs: torch.Tensor) -> None:
    """Chi-square against `probs`; the bound is far beyond the 99.9% quantile for these sizes."""
    expected = probs.double().numpy() * counts.sum()
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    assert ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum() < 30


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_draws_follow_the_distribution(temperature):
    counts = draw_many(LOGITS, temperature=temperature)
    assert_follows(counts, torch.softmax(LOGITS / temperature, -1))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, [3, 0]),
        ({"top_k": 6}, [3, 0, 1, 5, 2, 4]),
        ({"top_k": 100}, [3, 0, 1, 5, 2, 4]),
        ({"top_p": 0.5}, [3]),
        ({"top_p": 0.8}, [3, 0]),
        ({"top_p": 0.9}, [3, 0, 1]),
        ({"top_p": 1e-9}, [3]),
        ({"min_p": 0.3}, [3, 0]),
        ({"min_p": 1.0}, [3]),
        ({"top_k": 3, "top_p": 0.7}, [3, 0]),
        ({"top_k": 4, "top_p": 0.99, "min_p": 0.1}, [3, 0, 1]),
    ],
)
def test_what_is_kept(options, kept):
    probs = torch.zeros(6)
    probs[kept] = torch.softmax(LOGITS[kept], -1)
    assert_follows(draw_many(LOGITS, **options), probs)


def test_top_p_is_of_what_top_k_leaves():
    """3 has 0.665 of the two most probable tokens' mass 0.91, which is 0.73 of it."""
    assert_follows(draw_many(LOGITS, top_k=2, top_p=0.72), torch.eye(6)[3])


def test_temperature_comes_before_the_filters():
    """At temperature 2 the mass is flatter, so that top_p 0.5 keeps two tokens instead of one."""
    probs = torch.zeros(6)
    probs[[3, 0]] = torch.softmax(LOGITS[[3, 0]] / 2, -1)
    assert_follows(draw_many(LOGITS, temperature=2.0, top_p=0.5), probs)


def test_tokens_as_probable_as_the_last_kept_are_kept():
    counts = draw_many(torch.tensor([0.0, 1.0, 1.0, 1.0]), top_k=2)
    assert_follows(counts, torch.tensor([0, 1, 1, 1]) / 3)


def test_filters_on_a_large_vocabulary_equal_sorting_it_all(monkeypatch):
    logits = torch.randn(7, 5000, generator=torch.Generator().manual_seed(1))
    options = [{"top_p": 0.95}, {"top_k": 2000}, {"top_k": 3000, "top_p": 0.5}, {"top_p": 0.1}, {}, {"top_k": 5}]
    rows = rows_of(*options, {"min_p": 0.2})
    few = [sample(logits, rows.take(np.arange(7), np.full(7, index)))[0].tolist() for index in range(50)]
    monkeypatch.setattr("corelm_torch.sampler.HEAD", 5000)
    assert few == [sample(logits, rows.take(np.arange(7), np.full(7, index)))[0].tolist() for index in range(50)]


def test_greedy_takes_the_lowest_of_equals():
    logits = torch.tensor([[1.0, 5.0, 5.0, 0.0], [7.0, 5.0, 7.0, 7.0]])
    token_ids, _ = sample(logits, rows_of({"temperature": 0.0}, {"temperature": 1e-6}))
    assert token_ids.tolist() == [1, 0]


def test_top_k_of_one_is_greedy():
    logits = torch.tensor([1.0, 5.0, 5.0, 0.0])
    assert draw_many(logits, draws=50, top_k=1, temperature=2.0)[1] == 50


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e4])
def test_extreme_temperature_and_logits(scale):
    logits = (LOGITS * scale).repeat(2, 1)
    token_ids, failed = sample(logits, rows_of({"temperature": 1e-5}, {"temperature": 1e-5, "top_p": 0.5}))
    assert not failed.any()
    assert ((token_ids >= 0) & (token_ids < 6)).all()
    if scale >= 1:
        assert token_ids.tolist() == [3, 3]


def test_masked_tokens_are_never_drawn():
    logits = torch.full((50,), -torch.inf)
    logits[[0, 49]] = 1.0
    assert_follows(draw_many(logits), torch.eye(50)[0] / 2 + torch.eye(50)[49] / 2)


def test_a_draw_depends_on_nothing_but_its_row():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(30, 3000, generator=generator)
    kinds = [{}, {"top_p": 0.9}, {"top_k": 40}, {"temperature": 0.0}, {"min_p": 0.1}, {"top_p": 0.99, "top_k": 2500}]
    rows = rows_of(*(kinds[row % len(kinds)] | {"seed": row} for row in range(30)))
    together, _ = sample(logits, rows)
    for row in range(30):
        alone, _ = sample(logits[row : row + 1], rows.take(np.array([row])))
        assert alone[0] == together[row]


def test_seeds_and_indices_give_different_draws():
    logits = torch.zeros(1, 10_000)
    tokens = {
        int(sample(logits, rows_of({"seed": seed}, index=index))[0][0])
        for seed in (-1, 0, 1, 2**62)
        for index in range(9)
    }
    assert len(tokens) > 33


def test_uniform_numbers_are_uniform_and_stay_the_same():
    numbers = uniform(np.arange(20_000, dtype=np.uint64), np.zeros(20_000, np.uint64))
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 50
    assert numbers.min() >= 0
    assert numbers.max() < 1
    # Seeded requests must give the same text in every release.
    assert uniform(np.array([1], np.uint64), np.array([2], np.uint64))[0] == pytest.approx(
        0.7376992526901169, abs=1e-15
    )


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"top_p": 0.9}])
def test_a_bad_row_fails_alone(bad, options):
    logits = LOGITS.repeat(3, 1)
    logits[1, 2] = bad
    token_ids, failed = sample(logits, rows_of(*[options | {"top_k": 1}] * 3))
    assert failed.tolist() == [False, True, False]
    assert token_ids[[0, 2]].tolist() == [3, 3]
    assert sample(logits, rows_of(*[options] * 3))[1].tolist() == [False, True, False]
