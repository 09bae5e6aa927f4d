"""Sampling on the device, against sampling on the host."""

import numpy as np
import pytest
import torch
from corelm_gpu.kernels import highest
from corelm_gpu.kernels.launch import Launch
from corelm_gpu.sampling import DeviceSampler
from corelm_torch.logprobs import LEAST
from corelm_torch.step import ALL_MASKED, NOT_FINITE
from device_steps import on_device, on_host, possible, step_of
from gpu_kernels import DEVICE
from gpu_tiny import make_executor
from sequences import random_logits, random_tokens

HISTORY = random_tokens(12)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """As many as a large vocabulary has."""
    monkeypatch.setattr(highest, "CHUNK", 32)


def assert_same_scores(found, wanted):
    assert (found.token_id, found.rank, found.top_ids) == (wanted.token_id, wanted.rank, wanted.top_ids)
    assert [found.logprob, *found.top_logprobs] == pytest.approx([wanted.logprob, *wanted.top_logprobs], abs=1e-5)


def random_kind(generator, vocabulary):
    """Options of a request, each with some probability."""

    def tokens(most):
        return tuple(generator.choice(vocabulary, generator.integers(1, most), replace=False).tolist())

    options = {
        "temperature": lambda: float(generator.choice([0.2, 0.7, 1.0, 1.8])),
        "top_k": lambda: int(generator.integers(1, 40)),
        "top_p": lambda: float(generator.choice([0.1, 0.5, 0.9, 0.99])),
        "min_p": lambda: float(generator.choice([0.01, 0.2])),
        "logprobs": lambda: int(generator.integers(0, 40)),
        "repetition_penalty": lambda: float(generator.choice([0.5, 1.3])),
        "frequency_penalty": lambda: 0.7,
        "presence_penalty": lambda: -0.4,
        "allowed_token_ids": lambda: tokens(30),
        "logit_bias": lambda: dict.fromkeys(tokens(5), 3.0),
        "bad_words": lambda: tuple((token,) for token in tokens(20)),
        "grammar": lambda: tokens(60),
    }
    return {name: make() for name, make in options.items() if generator.random() < 0.25}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_asked_the_result_is_that_of_the_host(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    vocabulary = int(generator.choice([61, 83, 200]))
    kinds = [random_kind(generator, vocabulary) for _ in range(6)]
    logits = random_logits(len(kinds), seed, vocabulary)
    for value in (np.nan, np.inf, -np.inf):
        logits[generator.integers(0, len(kinds)), generator.integers(0, vocabulary)] = value
    batch = step_of(kinds, HISTORY, vocabulary)
    wanted, tokens = on_host(batch, logits), possible(batch, logits, monkeypatch)
    found, kept = on_device(batch, logits)
    assert found.errors == wanted.errors, kinds
    assert np.array_equal(found.token_ids, kept)
    for row, kind in enumerate(kinds):
        assert found.token_ids[row] in tokens[row], kind
        if row in wanted.logprobs and len(tokens[row]) == 1 and row not in wanted.errors:
            assert_same_scores(found.logprobs[row], wanted.logprobs[row])
    assert found.logprobs.keys() - wanted.errors.keys() == wanted.logprobs.keys() - wanted.errors.keys()


def test_a_row_does_not_depend_on_its_neighbours():
    generator = np.random.default_rng(5)
    kinds = [{"seed": seed, "logprobs": 2} | random_kind(generator, 61) for seed in range(6)]
    logits = random_logits(len(kinds), 5, 61)
    together, _ = on_device(step_of(kinds, HISTORY, 61), logits)
    for row, kind in enumerate(kinds):
        alone, _ = on_device(step_of([kind], HISTORY, 61), logits[row : row + 1])
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs.get(0) == together.logprobs.get(row)


def test_every_token_as_often_as_it_is_probable():
    """Seeds and indices as a server meets them: one request's tokens, one after the other."""
    logits = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))
    kinds = [{"temperature": 1.0, "seed": seed} for seed in range(160)]
    sequences = [step_of(kinds[first : first + 16], HISTORY, 5) for first in range(0, len(kinds), 16)]
    counts = np.zeros(5)
    for batch in sequences:
        found, _ = on_device(batch, np.tile(logits, (16, 1)))
        counts += np.bincount(found.token_ids, minlength=5)
    expected = np.exp(logits) * len(kinds)
    assert ((counts - expected) ** 2 / expected).sum() < 18.5, "the 99.9 % quantile of chi-square"


def test_nothing_is_sent_for_greedy_rows(monkeypatch):
    monkeypatch.setattr("corelm_gpu.staging.Staging.send", None)
    logits = random_logits(3)
    logits[1, 4] = np.nan
    found, kept = on_device(step_of([{}, {}, {}], HISTORY, 50), logits)
    assert found.token_ids.tolist() == kept.tolist() == [logits[0].argmax(), -1, logits[2].argmax()]
    assert found.errors == {1: NOT_FINITE}


def test_steps_of_any_size_one_after_the_other():
    sampler = DeviceSampler(vocab_size=50, device=DEVICE)
    for rows in (0, 3, 1, 6, 2):
        logits = random_logits(rows, rows)
        batch = step_of([{"temperature": 1.0, "top_k": 1 + row % 2, "seed": 3} for row in range(rows)], HISTORY, 50)
        sampling = sampler.sample(torch.from_numpy(logits.copy()).to(DEVICE), batch)
        assert sampling.wait().token_ids.tolist() == on_host(batch, logits).token_ids.tolist()


def test_logits_may_be_overwritten_before_anybody_waits():
    logits = random_logits(2)
    batch = step_of([{"logprobs": 3}, {}], HISTORY, 50)
    wanted = on_host(batch, logits)
    buffer = torch.from_numpy(logits.copy()).to(DEVICE)
    sampling = DeviceSampler(vocab_size=50, device=DEVICE).sample(buffer, batch)
    buffer.fill_(torch.nan)
    found = sampling.wait()
    assert found.token_ids.tolist() == wanted.token_ids.tolist()
    assert_same_scores(found.logprobs[0], wanted.logprobs[0])


def test_masks_that_leave_nothing_fail_their_row_alone():
    logits = random_logits(5)
    logits[3] = np.nan
    logits[4] = -np.inf
    kinds = [{}, {"allowed_token_ids": (4,), "grammar": (5, 6), "logprobs": 2}, {"temperature": 1.0, "grammar": (7,)}]
    batch = step_of([*kinds, {"logit_bias": {1: 1.0}}, {"temperature": 1.0}], HISTORY, 50)
    found, _ = on_device(batch, logits)
    assert found.errors == on_host(batch, logits).errors
    assert found.errors[1] == ALL_MASKED
    assert found.token_ids.tolist() == [logits[0].argmax(), -1, 7, -1, -1]


@pytest.mark.parametrize("top", [0, 1, 5, 40])
def test_log_probabilities_of_equal_and_of_impossible_tokens(top):
    logits = np.random.default_rng(0).integers(0, 3, (4, 35)).astype(np.float32)
    logits[1] = 2.0
    logits[2, 5:] = -np.inf
    logits[3, ::2] = -0.0
    batch = step_of([{"logprobs": top, "temperature": 1.0, "top_k": 7}] * 4, HISTORY, 35)
    found, _ = on_device(batch, logits)
    for row, score in found.logprobs.items():
        order = np.argsort(-logits[row], kind="stable")
        assert score.top_ids == tuple(order[:top].tolist())
        assert score.rank == 1 + int((logits[row] > logits[row, score.token_id]).sum())
        values = torch.log_softmax(torch.from_numpy(logits[row]), -1).clamp(min=LEAST)
        assert [score.logprob, *score.top_logprobs] == pytest.approx(
            values[[score.token_id, *score.top_ids]].tolist(), abs=1e-5
        )
    assert list(found.logprobs) == [0, 1, 2, 3]


def test_every_kernel_is_compiled_before_the_first_request(tiny_llama, monkeypatch):
    """By the step of which the memory is measured."""
    used, run = set(), Launch.run

    def record(launch):
        used.add(launch.kernel.__name__)
        run(launch)

    executor = make_executor(tiny_llama, max_num_seqs=1, max_num_batched_tokens=2, graphs=False)
    executor.load(lambda fraction, text: None)
    monkeypatch.setattr(Launch, "run", record)
    executor._try_largest_step()
    assert {"_sample", "_score_tokens", "_penalise", "_apply_mask"} <= used
