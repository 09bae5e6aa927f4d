"""Log-probabilities, against torch's."""

import numpy as np
import pytest
import torch
from corelm_torch.logprobs import token_logprobs, top_ids
from sequences import random_logits


def scores(logits, token_ids, top):
    return list(token_logprobs(logits, np.array(token_ids), np.array(top)))


@pytest.mark.parametrize("vocabulary", [3, 50, 64, 65, 640, 1000])
def test_values_ranks_and_the_most_probable(vocabulary):
    logits, rows = random_logits(9, vocabulary=vocabulary), range(9)
    token_ids = [row % vocabulary for row in rows]
    top = [min(count, vocabulary) for count in (0, 1, 5, 20, vocabulary, 2, 0, 3, 64)]
    reference = torch.log_softmax(torch.from_numpy(logits).double(), -1)
    for row, score in enumerate(scores(logits, token_ids, top)):
        assert score.token_id == token_ids[row]
        assert score.logprob == pytest.approx(float(reference[row, token_ids[row]]), abs=1e-6)
        order = reference[row].sort(descending=True, stable=True)
        assert score.rank == order.indices.tolist().index(token_ids[row]) + 1
        assert score.top_ids == tuple(order.indices[: top[row]].tolist())
        assert score.top_logprobs == pytest.approx(order.values[: top[row]].tolist(), abs=1e-6)


def test_of_equal_tokens_the_lowest_ids_come_first():
    """As it happens all the time in half precision."""
    logits = np.random.default_rng(0).integers(0, 4, 20_000).astype(np.float32)
    expected = np.argsort(-logits, kind="stable")
    for count in (1, 2, 30, 20_000):
        assert np.array_equal(top_ids(logits, count), expected[:count])
    assert scores(logits[None], [int(expected[1])], [1])[0].rank == 1


def test_everything_is_finite():
    logits = np.array([[0.0, -np.inf, -20000.0, 1.0]], np.float32)
    score = scores(logits, [1], [4])[0]
    assert (score.logprob, score.rank) == (-9999.0, 4)
    assert score.top_ids == (3, 0, 2, 1)
    assert score.top_logprobs[2:] == (-9999.0, -9999.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_distribution_has_none(bad):
    logits = random_logits(3)
    logits[1, 7] = bad
    found = scores(logits, [0, 0, 7], [2, 2, 2])
    assert found[1] is None
    assert [found[0], found[2]] == scores(logits[[0, 2]], [0, 7], [2, 2])


@pytest.mark.parametrize("vocabulary", [160, 5003])
def test_bits_do_not_depend_on_the_batch(vocabulary):
    rows = 67
    logits = random_logits(rows, vocabulary=vocabulary)
    token_ids = list(range(rows))
    together = scores(logits, token_ids, [4] * rows)
    for row in range(rows):
        assert scores(logits[row : row + 1], [token_ids[row]], [4]) == [together[row]]
