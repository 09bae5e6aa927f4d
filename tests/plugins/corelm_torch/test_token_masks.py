"""Masks and biases, against transformers' logits processors."""

import numpy as np
import pytest
import torch
from sequences import VOCABULARY, Sequences, random_logits, random_tokens
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

HISTORY = [3, 7, 7, 9, 4, 5, 6]


def apply(processor, token_ids, logits):
    """What one of transformers' processors makes of `logits`."""
    return processor(torch.tensor([token_ids]), torch.tensor(logits)).numpy()


def edited(logits, token_ids, **options):
    sequences = Sequences()
    sequences.add(token_ids, **options)
    return sequences.edited(logits)


@pytest.mark.parametrize(
    "bad_words",
    [
        ((11,),),
        ((11,), (12,), (11,)),
        ((5, 6, 20),),
        ((6, 20), (6, 21), (7, 22), (4, 5, 6, 23), (9, 5, 6, 24)),
        ((3, 7, 7, 9, 4, 5, 6, 25),),
        ((1, 3, 7, 7, 9, 4, 5, 6, 25),),
        ((6, 6),),
    ],
)
def test_bad_words(bad_words):
    logits = random_logits(1)
    expected = apply(NoBadWordsLogitsProcessor([list(word) for word in bad_words]), HISTORY, logits)
    assert np.array_equal(edited(logits, HISTORY, bad_words=bad_words), expected)


def test_bad_words_follow_the_output():
    """A word may begin in the prompt and end in the output."""
    sequences = Sequences()
    sequences.add([1, 2], bad_words=((2, 3, 4), (3, 5)))
    logits = random_logits(1)
    assert np.array_equal(sequences.edited(logits), logits)
    sequences.append([3])
    processor = NoBadWordsLogitsProcessor([[2, 3, 4], [3, 5]])
    assert np.array_equal(sequences.edited(logits), apply(processor, [1, 2, 3], logits))
    sequences.append([0])
    assert np.array_equal(sequences.edited(logits), logits)


@pytest.mark.parametrize("output_len", [0, 1, 2, 3, 4])
def test_min_tokens(output_len):
    logits, token_ids = random_logits(1), random_tokens(3 + output_len)
    processor = MinNewTokensLengthLogitsProcessor(3, 3, [8, 30])
    expected = apply(processor, token_ids, logits)
    assert np.isinf(expected).any() == (output_len < 3)
    assert np.array_equal(edited(logits, token_ids, prompt_len=3, min_tokens=3, end_token_ids=(8, 30)), expected)


def test_logit_bias():
    logits, bias = random_logits(1), {0: 2.5, 17: -100.0, VOCABULARY - 1: 100.0}
    expected = apply(SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()}), HISTORY, logits)
    np.testing.assert_allclose(edited(logits, HISTORY, logit_bias=bias), expected, rtol=1e-6)


def test_allowed_token_ids():
    logits, allowed = random_logits(1), (4, 49, 4, 0)
    others = [token for token in range(VOCABULARY) if token not in allowed]
    expected = apply(SuppressTokensLogitsProcessor(others), HISTORY, logits)
    assert np.array_equal(edited(logits, HISTORY, allowed_token_ids=allowed), expected)


def test_a_bias_does_not_bring_masked_tokens_back():
    options = {"allowed_token_ids": (1, 2, 3, 4), "bad_words": ((2,),), "end_token_ids": (3,), "min_tokens": 1}
    result = edited(random_logits(1), HISTORY, **options, logit_bias=dict.fromkeys(range(VOCABULARY), 100.0))
    assert np.flatnonzero(np.isfinite(result[0])).tolist() == [1, 4]


def test_ids_beyond_the_vocabulary_are_left_out():
    options = {
        "allowed_token_ids": (1, VOCABULARY, 2**31 - 1),
        "logit_bias": {1: 1.0, VOCABULARY: 5.0},
        "bad_words": ((VOCABULARY,), (HISTORY[-1], VOCABULARY)),
        "end_token_ids": (VOCABULARY + 1,),
        "min_tokens": 5,
    }
    logits = random_logits(2)
    sequences = Sequences()
    sequences.add(HISTORY, **options)
    sequences.add(HISTORY)
    result = sequences.edited(logits)
    assert np.flatnonzero(np.isfinite(result[0])).tolist() == [1]
    assert np.array_equal(result[1], logits[1])


def test_rows_do_not_touch_each_other():
    kinds = [
        {"bad_words": ((5,), (HISTORY[-1], 6))},
        {},
        {"logit_bias": {5: 1.0}},
        {"allowed_token_ids": (5, 6, 7)},
        {"end_token_ids": (1, 2), "min_tokens": 9},
        {},
        {"logit_bias": {5: -1.0, 6: 2.0}, "allowed_token_ids": (6,)},
    ]
    logits, together = random_logits(len(kinds)), Sequences()
    for kind in kinds:
        together.add(HISTORY, **kind)
    result = together.edited(logits)
    for row, kind in enumerate(kinds):
        assert np.array_equal(result[row], edited(logits[row : row + 1], HISTORY, **kind)[0])
    assert np.array_equal(result[[1, 5]], logits[[1, 5]])


def test_there_is_nothing_to_do_where_no_mask_applies():
    sequences = Sequences()
    sequences.add(HISTORY)
    sequences.add(HISTORY, bad_words=((1, 2),))
    sequences.add(HISTORY, prompt_len=2, end_token_ids=(1,), min_tokens=5)
    batch = sequences.next_step()
    assert batch.details.edits == ()
    assert not len(batch.detailed)
