"""From logits to what a step reports."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from corelm_torch.outputs import HeadOutputs
from corelm_torch.step import ALL_MASKED, NO_EMBEDDING, NOT_FINITE, embed, finish_step
from sequences import VOCABULARY, Sequences, random_logits, random_tokens

from corelm.api import SequenceSlice, StepPlan

HISTORY = random_tokens(12)


def sampled(logits, *kinds):
    sequences = Sequences()
    for kind in kinds:
        sequences.add(HISTORY, **kind)
    return sequences.sample(logits)[0]


def test_greedy_rows_are_edited_too():
    logits = random_logits(1)
    best = logits[0].argsort()[::-1].tolist()
    for options in ({"temperature": 0.0}, {"temperature": 2.0, "top_k": 1}):
        assert sampled(logits, options).token_ids.tolist() == best[:1]
        banned = options | {"bad_words": ((best[0],), (best[1],))}
        assert sampled(logits, banned).token_ids.tolist() == best[2:3]
        assert sampled(logits, options | {"logit_bias": {5: 100.0}}).token_ids.tolist() == [5]


def test_drawn_tokens_obey_masks():
    allowed = (3, 8, 20)
    rows = [{"allowed_token_ids": allowed, "temperature": 2.0, "top_p": 0.99, "top_k": 30, "seed": 9}] * 16
    tokens = sampled(
        np.zeros((16, VOCABULARY), np.float32), *[row | {"seed": seed} for seed, row in enumerate(rows)]
    ).token_ids
    assert set(tokens.tolist()) == set(allowed)


def test_masks_that_leave_nothing_fail_their_row_alone():
    logits = random_logits(4)
    logits[3] = np.nan
    nothing = {"allowed_token_ids": (4,), "bad_words": ((4,),), "logprobs": 2}
    result = sampled(logits, {}, nothing, {"logprobs": 0}, {"logit_bias": {1: 1.0}})
    assert result.errors == {1: ALL_MASKED, 3: NOT_FINITE}
    assert result.token_ids[[0, 2]].tolist() == logits[[0, 2]].argmax(-1).tolist()


def test_logprobs_are_the_models_own():
    """Not those after temperature, penalties or masks."""
    logits = random_logits(3)
    reference = torch.log_softmax(torch.from_numpy(logits), -1)
    best = reference[0].sort(descending=True)
    options = {"logprobs": 3, "temperature": 0.5, "bad_words": ((int(best.indices[0]),),), "repetition_penalty": 3.0}
    result = sampled(logits, options | {"top_k": 1}, {}, {"logprobs": 0, "temperature": 2.0, "top_p": 0.1})
    assert sorted(result.logprobs) == [0, 2]
    first, last = result.logprobs[0], result.logprobs[2]
    assert first.token_id == result.token_ids[0] != best.indices[0]
    assert first.logprob == pytest.approx(float(reference[0, first.token_id]), abs=1e-6)
    assert first.rank == best.indices.tolist().index(first.token_id) + 1
    assert first.top_ids == tuple(best.indices[:3].tolist())
    assert (last.token_id, last.top_ids) == (result.token_ids[2], ())
    assert sampled(logits[:1], options | {"top_k": 1}).logprobs[0] == first


def test_logprobs_cost_nothing_where_nobody_asks(monkeypatch):
    monkeypatch.setattr("corelm_torch.logprobs.top_ids", None)
    assert sampled(random_logits(2), {}, {"temperature": 1.0}).logprobs == {}


def test_a_row_does_not_depend_on_its_neighbours():
    kinds = [
        {"temperature": 1.0, "repetition_penalty": 1.5},
        {"temperature": 1.3, "top_p": 0.9, "logit_bias": {3: 2.0}},
        {},
        {"temperature": 1.0, "logprobs": 5, "presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"temperature": 0.7, "allowed_token_ids": tuple(range(10))},
        {"logprobs": 1},
    ]
    kinds = [kind | {"seed": seed} for seed, kind in enumerate(kinds)]
    logits = random_logits(len(kinds))
    together = sampled(logits, *kinds)
    for row, kind in enumerate(kinds):
        alone = sampled(logits[row : row + 1], kind)
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs.get(0) == together.logprobs.get(row)


def test_a_greedy_row_without_finite_scores_fails_alone():
    sequences = Sequences()
    seq_ids = [sequences.add([1, 2, 3], **options) for options in ({}, {}, {"temperature": 1.0, "top_k": 2})]
    logits = random_logits(3)
    logits[1, 7] = np.nan
    batch = sequences.next_step()
    slices = [SequenceSlice(seq_id=seq_id, start=2, num_tokens=1, new_block_ids=(), sample=True) for seq_id in seq_ids]
    plan = StepPlan(step_id=4, slices=tuple(slices))
    result, token_ids = finish_step(plan, batch, HeadOutputs(batch, logits, np.copy, np.asarray))
    assert result.errors == {seq_ids[1]: NOT_FINITE}
    assert result.token_ids == [[logits[0].argmax()], [], [token_ids[2]]]
    assert token_ids[1] == -1


def test_sampling_needs_no_torch():
    """Executors with kernels of their own start without it."""
    code = "import sys, corelm_torch.outputs, corelm_torch.step; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_embeddings_have_length_one_however_large_the_numbers():
    hidden = np.array([[3, 4, 0], [1e-30, 0, 0], [3e38, 3e38, 0]], np.float32)
    embeddings, errors = embed([7, 5, 6], hidden)
    assert errors == {}
    assert list(embeddings) == [7, 5, 6]
    assert np.frombuffer(embeddings[7], "<f4").tolist() == pytest.approx([0.6, 0.8, 0])
    assert np.frombuffer(embeddings[5], "<f4").tolist() == [1, 0, 0]
    assert np.frombuffer(embeddings[6], "<f4").tolist() == pytest.approx([0.5**0.5, 0.5**0.5, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_what_cannot_be_an_embedding_fails_alone(bad):
    embeddings, errors = embed([1, 2], np.array([[0, bad, 0], [0, 1, 0]], np.float32))
    assert embeddings.keys() == {2}
    assert errors == {1: NO_EMBEDDING}
