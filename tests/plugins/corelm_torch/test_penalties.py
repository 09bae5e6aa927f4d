"""Penalties, against transformers and a plain count."""

from collections import Counter

import numpy as np
import pytest
import torch
from corelm_torch.penalties import TokenCounts
from sequences import VOCABULARY, Sequences, random_logits, random_tokens
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from corelm.api import SamplingParams, SequenceStart


def expected(logits, token_ids, prompt_len, repetition_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0):
    """Penalties as their definition says: repetition, then frequency and presence."""
    processor = RepetitionPenaltyLogitsProcessor(repetition_penalty)
    logits = processor(torch.tensor([token_ids]), torch.tensor(logits[None]))[0].numpy()
    for token, count in Counter(token_ids[prompt_len:]).items():
        logits[token] -= frequency_penalty * count + presence_penalty
    return logits


KINDS = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.5},
    {"frequency_penalty": 0.7},
    {"frequency_penalty": -2.0},
    {"presence_penalty": 1.1},
    {"presence_penalty": -0.4, "frequency_penalty": 0.4},
    {"repetition_penalty": 2.0, "frequency_penalty": 0.3, "presence_penalty": 0.2},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("prompt_len", [1, 20, 40])
def test_penalties(kind, prompt_len):
    logits, token_ids, sequences = random_logits(1), random_tokens(40), Sequences()
    sequences.add(token_ids, prompt_len=prompt_len, **kind)
    np.testing.assert_allclose(
        sequences.edited(logits)[0], expected(logits[0], token_ids, prompt_len, **kind), rtol=1e-6, atol=1e-6
    )


def test_rows_have_penalties_of_their_own_and_count_as_they_grow():
    sequences = Sequences()
    histories = [random_tokens(length, length) for length in range(3, 3 + len(KINDS) + 2)]
    kinds = [{}, *KINDS, {}]
    for history, kind in zip(histories, kinds, strict=True):
        sequences.add(history, **kind)
    prompt_lens = [len(history) for history in histories]
    for step in range(12):
        logits = random_logits(len(kinds), seed=step)
        result = sequences.edited(logits)
        assert np.array_equal(result[[0, -1]], logits[[0, -1]])
        for row, kind in enumerate(kinds):
            want = expected(logits[row], histories[row], prompt_lens[row], **kind)
            np.testing.assert_allclose(result[row], want, rtol=1e-6, atol=1e-6)
        tokens = random_tokens(len(kinds), seed=step + 100)
        sequences.append(tokens)
        for history, token in zip(histories, tokens, strict=True):
            history.append(token)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sequence_that_comes_back_has_the_same_counts(kind):
    first, again = Sequences(), Sequences()
    tokens, output = random_tokens(10), random_tokens(15, seed=1)
    first.add(tokens, **kind)
    for token in output:
        first.next_step()
        first.append([token])
    again.add(tokens + output, prompt_len=10, **kind)
    logits = random_logits(1)
    assert np.array_equal(first.edited(logits), again.edited(logits))


def test_masks_come_before_penalties():
    sequences = Sequences()
    sequences.add([1, 2, 3, 2], prompt_len=1, repetition_penalty=2.0, logit_bias={2: 10.0}, bad_words=((3,),))
    result = sequences.edited(np.full((1, VOCABULARY), -4.0, np.float32))[0]
    assert result[1] == -8.0
    assert result[2] == 3.0
    assert result[3] == -np.inf
    assert result[4] == -4.0


def test_rows_without_penalties_cost_nothing():
    sequences = Sequences()
    sequences.add([1, 2, 3])
    sequences.add([1, 2, 3], repetition_penalty=2.0)
    sequences.add([1, 2, 3], presence_penalty=1.0)
    batch = sequences.next_step()
    (edit,) = batch.details.edits
    assert batch.detailed.tolist() == [1]
    assert edit.places.tolist() == [1, 2, 3]


def test_state_grows_with_distinct_tokens_only():
    params = SamplingParams(seed=0, frequency_penalty=1.0)
    counts = TokenCounts(SequenceStart(seq_id=0, token_ids=[9, 9, 9], prompt_len=2, sampling=params))
    for token in (9, 4, 9, 4, 4):
        counts.add(token)
    assert (list(counts.ids), list(counts.counts)) == ([9, 4], [3, 3])
