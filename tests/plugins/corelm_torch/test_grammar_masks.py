"""Masks of grammars and forced tokens in the tables of a step."""

import msgspec
import numpy as np
import pytest
from corelm_torch.grammar_masks import GrammarEdit
from corelm_torch.step import ALL_MASKED
from sequences import VOCABULARY, Sequences, random_logits, random_tokens

from corelm.api import StepPlan
from corelm.testing import mask_of


class Bound(Sequences):
    """Sequences of which some have forced tokens, by seq_id."""

    def __init__(self):
        super().__init__()
        self.forced = {}
        self.apply, self.table.apply = self.table.apply, self._apply

    def _apply(self, plan):
        slices = tuple(map(self._bound, plan.slices))
        return self.apply(StepPlan(step_id=0, started=plan.started, slices=slices))

    def _bound(self, item):
        forced = tuple(self.forced.pop(item.seq_id, ()))
        self.lengths[item.seq_id] += len(forced)
        return msgspec.structs.replace(item, forced=forced, num_tokens=item.num_tokens + len(forced))


@pytest.mark.parametrize("vocabulary", [1, 7, 8, 31, 32, 33, 64, 257])
def test_what_is_not_allowed_becomes_minus_infinity(vocabulary):
    draw = np.random.default_rng(vocabulary)
    logits = random_logits(5, vocabulary=vocabulary)
    allowed = {row: np.flatnonzero(draw.random(vocabulary) < 0.5) for row in (0, 2, 3)}
    expected = logits.copy()
    for row, tokens in allowed.items():
        expected[row] = -np.inf
        expected[row, tokens] = logits[row, tokens]
    GrammarEdit(masks={row: mask_of(tokens.tolist(), vocabulary) for row, tokens in allowed.items()}).apply(logits)
    assert np.array_equal(logits, expected)


def test_rows_without_a_mask_are_left_alone_and_others_get_their_own():
    sequences = Bound()
    for temperature in (0.0, 0.0, 1.0, 0.0):
        sequences.add(random_tokens(4), temperature=temperature)
    sequences.allowed = {1: {3, 4}, 2: {48}}
    logits = random_logits(4)
    sampled, _ = sequences.sample(logits)
    best = logits.argmax(axis=1)
    assert sampled.token_ids.tolist() == [best[0], 3 + int(logits[1, 4] > logits[1, 3]), 48, best[3]]
    assert sequences.batch.detailed.tolist() == [1, 2]


def test_a_mask_and_other_limits_hold_together():
    sequences = Bound()
    sequences.add(random_tokens(4), allowed_token_ids=(1, 2, 3), bad_words=((2,),), logit_bias={3: 100.0, 4: 100.0})
    sequences.add(random_tokens(4), presence_penalty=2.0)
    sequences.add(random_tokens(4), allowed_token_ids=(1, 2))
    sequences.allowed = {0: {2, 3, 4}, 1: {5}, 2: {3, 4}}
    sampled, _ = sequences.sample(random_logits(3))
    assert sampled.token_ids.tolist()[:2] == [3, 5]
    assert sampled.errors == {2: ALL_MASKED}


def test_log_probabilities_are_those_before_the_mask():
    sequences = Bound()
    sequences.add(random_tokens(4), logprobs=1)
    logits = random_logits(1)
    worst = int(logits[0].argmin())
    sequences.allowed = {0: {worst}}
    sampled, _ = sequences.sample(logits.copy())
    entry = sampled.logprobs[0]
    assert (entry.token_id, entry.rank) == (worst, VOCABULARY)
    assert entry.logprob == pytest.approx(
        logits[0, worst] - np.log(np.exp(logits[0].astype(np.float64)).sum()), abs=1e-5
    )


def test_a_model_that_computes_no_numbers_fails_as_ever():
    sequences = Bound()
    sequences.add(random_tokens(4))
    sequences.allowed = {0: {1}}
    logits = random_logits(1)
    logits[0, 7] = np.inf
    assert 0 in sequences.sample(logits)[0].errors


@pytest.mark.parametrize("kind", [{}, {"repetition_penalty": 1.5, "frequency_penalty": 0.5}, {"bad_words": ((8, 9),)}])
def test_forced_tokens_are_as_good_as_sampled_ones(kind):
    forced = [7, 7, 8]
    told, started = Bound(), Sequences()
    told.add(random_tokens(6), temperature=1.0, **kind)
    told.next_step()
    told.append([4])
    told.forced = {0: forced}
    started.add([*random_tokens(6), 4, *forced], prompt_len=6, temperature=1.0, **kind)
    logits = random_logits(1, seed=3)
    (token,), edited = (lambda found: (found[0].token_ids, found[1]))(told.sample(logits.copy()))
    (expected,), wanted = (lambda found: (found[0].token_ids, found[1]))(started.sample(logits.copy()))
    assert token == expected
    np.testing.assert_allclose(edited, wanted, rtol=1e-6)
    assert told.batch.token_ids.tolist() == [4, *forced]
    assert told.batch.details.sampling.index.tolist() == [4]
    told.append([5])
    assert told.next_step().token_ids.tolist() == [5]
