"""Sampling, row by row."""

from typing import Any

import numpy as np
import pytest
import torch
from corelm_torch.sampler import SamplingRows, sample, uniform

from corelm.api import SamplingParams

LOGITS = np.array([2.0, 1.0, 0.0, 3.0, -1.0, 0.5], np.float32)


def rows_of(*params: dict[str, Any], index: int = 0) -> SamplingRows:
    rows = SamplingRows.zeros(len(params))
    for row, options in enumerate(params):
        rows.set(row, SamplingParams(**{"seed": 0} | options))
    return rows.take(np.arange(len(params)), np.full(len(params), index))


def draw_many(logits: np.ndarray, draws: int = 4000, **options: Any) -> np.ndarray:
    """How often each token comes, over `draws` consecutive output tokens of one request."""
    rows = rows_of(*[options] * draws).take(np.arange(draws), np.arange(draws))
    return np.bincount(sample(np.tile(logits, (draws, 1)), rows), minlength=logits.size)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities, in double precision."""
    return torch.softmax(torch.from_numpy(logits).double(), -1).numpy()


def only(kept: list[int], logits: np.ndarray = LOGITS) -> np.ndarray:
    """The probabilities when all tokens but some are dropped."""
    probs = np.zeros(logits.size)
    probs[kept] = softmax(logits[kept])
    return probs


def assert_follows(counts: np.ndarray, probs: np.ndarray) -> None:
    """Chi-square against `probs`; the bound is far beyond the 99.9% quantile for these sizes."""
    expected = probs * counts.sum()
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    assert ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum() < 30


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_draws_follow_the_distribution(temperature):
    counts = draw_many(LOGITS, temperature=temperature)
    assert_follows(counts, softmax(LOGITS / temperature))


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
    assert_follows(draw_many(LOGITS, **options), only(kept))


def test_top_p_is_of_what_top_k_leaves():
    """3 has 0.665 of the two most probable tokens' mass 0.91, which is 0.73 of it."""
    assert_follows(draw_many(LOGITS, top_k=2, top_p=0.72), only([3]))


def test_temperature_comes_before_the_filters():
    """At temperature 2 the mass is flatter, so that top_p 0.5 keeps two tokens instead of one."""
    assert_follows(draw_many(LOGITS, temperature=2.0, top_p=0.5), only([3, 0], LOGITS / 2))


def test_tokens_as_probable_as_the_last_kept_are_kept():
    logits = np.array([0.0, 1.0, 1.0, 1.0], np.float32)
    for options in ({"top_k": 2}, {"top_p": 0.4}, {"top_k": 3, "top_p": 0.1}):
        assert_follows(draw_many(logits, **options), only([1, 2, 3], logits))


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("vocabulary", [1, 63, 64, 257, 5000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 5},
        {"top_k": 77},
        {"top_k": 2000},
        {"top_p": 0.1},
        {"top_p": 0.95},
        {"top_p": 0.999999},
        {"top_k": 3000, "top_p": 0.5},
        {"min_p": 0.2},
        {"top_k": 50, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)
def test_draws_equal_those_from_a_sorted_vocabulary(options, vocabulary, scale):
    generator = np.random.default_rng(1)
    logits = (generator.standard_normal((20, vocabulary)) * scale).astype(np.float32)
    rows = rows_of(*[options] * 20).take(np.arange(20), np.arange(20))
    numbers = uniform(rows.seed, rows.index).tolist()
    expected = [drawn_plainly(row, number, **options) for row, number in zip(logits, numbers, strict=True)]
    assert sample(logits, rows).tolist() == expected


def drawn_plainly(
    logits: np.ndarray, number: float, top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0
) -> int:
    """The definition, computed in double precision."""
    probs = softmax(logits)
    least = min_p * probs.max()
    descending = np.sort(probs)[::-1][:top_k]
    if top_p < 1:
        within = descending.cumsum() < top_p * descending.sum()
        least = max(least, descending[within.sum()])
    probs[probs < max(least, descending[-1])] = 0
    return int((probs.cumsum() > number * probs.sum()).argmax())


def test_the_end_of_a_group_of_tokens_is_not_passed(monkeypatch):
    """However large the random number is, what is drawn is a token that was kept."""
    monkeypatch.setattr("corelm_torch.sampler.uniform", lambda seed, index: np.full(len(seed), 1 - 2.0**-48))
    generator = np.random.default_rng(4)
    for size in (1, 200, 256, 257, 600):
        logits = np.full((20, 700), -np.inf, np.float32)
        logits[:, :size] = generator.standard_normal((20, size))
        assert sample(logits, rows_of(*[{}] * 20)).max() == size - 1


def test_greedy_takes_the_lowest_of_equals():
    logits = np.array([[1.0, 5.0, 5.0, 0.0], [7.0, 5.0, 7.0, 7.0]], np.float32)
    assert sample(logits, rows_of({"temperature": 0.0}, {"temperature": 1e-6})).tolist() == [1, 0]


def test_top_k_of_one_is_greedy():
    logits = np.array([1.0, 5.0, 5.0, 0.0], np.float32)
    assert draw_many(logits, draws=50, top_k=1, temperature=2.0)[1] == 50


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e4, 1e38])
def test_extreme_temperature_and_logits(scale):
    logits = np.tile(LOGITS * np.float32(scale), (2, 1))
    token_ids = sample(logits, rows_of({"temperature": 1e-5}, {"temperature": 1e-5, "top_p": 0.5}))
    assert ((token_ids >= 0) & (token_ids < 6)).all()
    if scale >= 1:
        assert token_ids.tolist() == [3, 3]


def test_masked_tokens_are_never_drawn():
    logits = np.full(50, -np.inf, np.float32)
    logits[[0, 49]] = 1.0
    for options in ({}, {"top_k": 10}, {"top_p": 0.9}):
        assert_follows(draw_many(logits, **options), only([0, 49], logits))


def test_a_draw_depends_on_nothing_but_its_row():
    logits = np.random.default_rng(2).standard_normal((30, 3000), np.float32)
    kinds = [{}, {"top_p": 0.9}, {"top_k": 40}, {"temperature": 0.0}, {"min_p": 0.1}, {"top_p": 0.99, "top_k": 2500}]
    rows = rows_of(*(kinds[row % len(kinds)] | {"seed": row} for row in range(30)))
    together = sample(logits, rows)
    for row in range(30):
        assert sample(logits[row : row + 1], rows.take(np.array([row])))[0] == together[row]


def test_seeds_and_indices_give_different_draws():
    logits = np.zeros((1, 10_000), np.float32)
    tokens = {
        int(sample(logits, rows_of({"seed": seed}, index=index))[0]) for seed in (-1, 0, 1, 2**62) for index in range(9)
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


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"top_p": 0.9}])
def test_a_bad_row_fails_alone(bad, options):
    logits = np.tile(LOGITS, (3, 1))
    logits[1, 2] = bad
    assert sample(logits, rows_of(*[options | {"top_k": 1}] * 3)).tolist() == [3, -1, 3]
    assert (sample(logits, rows_of(*[options] * 3)) < 0).tolist() == [False, True, False]
