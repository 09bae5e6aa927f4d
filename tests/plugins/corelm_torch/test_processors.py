"""Logits processors of plugins, on the rows of one step."""

import numpy as np
import pytest
import torch
from corelm_torch.step import ALL_PROCESSED, NOT_FINITE
from sequences import Sequences, random_logits, random_tokens

from corelm.api import LogitsProcessor

HISTORY = random_tokens(12)


class Function(LogitsProcessor):
    """Calls a function with the logits and the row, row by row."""

    def __init__(self, function):
        self.function = function
        self.calls = []

    def check(self, argument):
        """Takes anything."""

    def apply(self, logits, rows):
        self.calls.append(
            (logits.numpy().copy(), [(row.argument, list(row.token_ids), row.prompt_len) for row in rows])
        )
        for number, row in enumerate(rows):
            self.function(logits[number], row)


def force(logits, row):
    """Leave nothing but the argument."""
    kept = logits[row.argument].clone()
    logits.fill_(-torch.inf)
    logits[row.argument] = kept


def step(logits, processors, *kinds):
    """What is sampled from `logits` by a sequence of each kind, and the logits it was sampled from."""
    sequences = Sequences(logits_processors=processors)
    for kind in kinds:
        sequences.add(HISTORY, prompt_len=8, **kind)
    return sequences.sample(logits)


def use(**arguments):
    return {"logits_processors": arguments}


def test_a_processor_is_called_once_with_the_rows_that_use_it():
    logits, processor = random_logits(4), Function(force)
    sampled, _ = step(logits, {"force": processor}, {}, use(force=3), {}, use(force=40))
    [(seen, rows)] = processor.calls
    assert np.array_equal(seen, logits[[1, 3]])
    assert rows == [(3, HISTORY, 8), (40, HISTORY, 8)]
    assert sampled.token_ids.tolist() == [logits[0].argmax(), 3, logits[2].argmax(), 40]


def test_other_rows_keep_their_bits():
    logits = random_logits(3)
    _, edited = step(logits, {"scale": Function(lambda row, _: row.mul_(3))}, {}, use(scale=None), {})
    assert np.array_equal(edited[[0, 2]], logits[[0, 2]])
    assert np.array_equal(edited[1], logits[1] * 3)


def test_nobody_asks_and_nothing_is_called():
    processor = Function(force)
    step(random_logits(2), {"force": processor}, {}, {"temperature": 1.0})
    assert not processor.calls


def test_tokens_are_read_only_and_grow_with_the_sequence():
    def check(logits, row):
        with pytest.raises(TypeError):
            row.token_ids[0] = 1
        array = np.asarray(row.token_ids)
        assert not array.flags.writeable
        seen.append(array.tolist())

    seen = []
    sequences = Sequences(logits_processors={"check": Function(check)})
    sequences.add(HISTORY, **use(check=None))
    for _ in range(2):
        sampled = sequences.sample(random_logits(1))[0]
        assert not sampled.errors
        sequences.append([7])
    assert seen == [HISTORY, [*HISTORY, 7]]


def test_the_order_is_that_of_the_setting():
    processors = {"double": Function(lambda row, _: row.mul_(2)), "add": Function(lambda row, _: row.add_(1))}
    logits = random_logits(1)
    _, edited = step(logits, processors, use(add=None, double=None))
    assert np.array_equal(edited, logits * 2 + 1)


def test_it_comes_after_masks_and_penalties_and_before_the_temperature():
    processor = Function(lambda row, _: None)
    options = {"bad_words": ((5,),), "presence_penalty": 1.5, "temperature": 0.3, "seed": 1}
    logits = random_logits(1)
    step(logits, {"look": processor}, use(look=None) | options)
    [(seen, _)] = processor.calls
    expected = logits.copy()
    expected[0, list(set(HISTORY[8:]))] -= 1.5
    expected[0, 5] = -np.inf
    assert np.array_equal(seen, expected)


def test_logprobs_are_taken_before():
    logits = random_logits(2)
    for kinds in ([use(force=3) | {"logprobs": 2}, {}], [use(force=3) | {"logprobs": 2}, {"logprobs": 0}]):
        sampled, _ = step(logits, {"force": Function(force)}, *kinds)
        best = torch.log_softmax(torch.from_numpy(logits[0]), -1)
        assert sampled.logprobs[0].token_id == 3
        assert sampled.logprobs[0].logprob == pytest.approx(float(best[3]), abs=1e-6)
        assert sampled.logprobs[0].top_ids == tuple(logits[0].argsort()[:-3:-1].tolist())


def picky(logits, row):
    force(logits, row)
    if row.argument == 13:
        raise KeyError("unlucky")


def test_a_row_that_makes_it_raise_fails_alone(caplog):
    logits = random_logits(4)
    sampled, edited = step(logits, {"picky": Function(picky)}, use(picky=4), use(picky=13), {}, use(picky=20))
    assert sampled.errors == {1: "logits processor 'picky' failed: KeyError: 'unlucky'"}
    assert sampled.token_ids[[0, 2, 3]].tolist() == [4, logits[2].argmax(), 20]
    assert np.array_equal(edited[1:3], logits[1:3])
    [record] = caplog.records
    assert record.getMessage() == "logits processor 'picky' failed"
    assert isinstance(record.exc_info[1], KeyError)


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit("broken")])
def test_a_processor_that_always_raises_hurts_none_but_its_users(error, caplog):
    def fail(logits, row):
        logits.fill_(torch.nan)
        raise error

    logits = random_logits(4)
    processors = {"fail": Function(fail), "force": Function(force)}
    sampled, _ = step(logits, processors, use(fail=1), {}, use(force=9), use(force=9, fail=None))
    assert set(sampled.errors) == {0, 3}
    assert all("'fail' failed" in reason and "broken" in reason for reason in sampled.errors.values())
    assert sampled.token_ids[[1, 2]].tolist() == [logits[1].argmax(), 9]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("value", [-torch.inf, torch.nan, torch.inf])
def test_a_processor_that_leaves_nothing_fails_its_row_alone(value):
    logits = random_logits(3)
    logits[2] = np.nan
    sampled, _ = step(logits, {"fill": Function(lambda row, _: row.fill_(value))}, use(fill=None), {}, {})
    assert sampled.errors == {0: ALL_PROCESSED, 2: NOT_FINITE}
    assert sampled.token_ids[1] == logits[1].argmax()
