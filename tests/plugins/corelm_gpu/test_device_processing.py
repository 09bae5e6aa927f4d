"""Logits processors, whose rows go to the host and come back."""

import numpy as np
import pytest
import torch
from corelm_torch.step import ALL_PROCESSED, NOT_FINITE
from device_steps import on_device, on_host, step_of
from sequences import random_logits, random_tokens

from corelm.api import LogitsProcessor

HISTORY = random_tokens(12)


class Function(LogitsProcessor):
    """Calls a function with the logits and the argument, row by row."""

    def __init__(self, function):
        self.function = function

    def check(self, argument):
        """Takes anything."""

    def apply(self, logits, rows):
        assert not torch.is_inference_mode_enabled(), "processors may need gradients"
        for number, row in enumerate(rows):
            self.function(logits[number], row.argument)


def force(logits, token):
    """Leave nothing but one token."""
    kept = logits[token].clone()
    logits.fill_(-torch.inf)
    logits[token] = kept


def picky(logits, argument):
    logits.mul_(2)
    if argument == 13:
        raise KeyError("unlucky")


PROCESSORS = {
    "force": Function(force),
    "picky": Function(picky),
    "fill": Function(lambda logits, value: logits.fill_(value)),
}


def use(**arguments):
    return {"logits_processors": arguments}


def assert_as_on_the_host(logits, *kinds):
    batch = step_of(kinds, HISTORY, logits.shape[1], PROCESSORS)
    wanted, (found, _) = on_host(batch, logits), on_device(batch, logits)
    assert found.token_ids.tolist() == wanted.token_ids.tolist()
    assert found.errors == wanted.errors
    return found


def test_rows_are_processed_and_others_are_not():
    logits = random_logits(5)
    options = {"presence_penalty": 1.5, "bad_words": ((5,),), "logprobs": 2}
    found = assert_as_on_the_host(
        logits, {}, use(force=3) | options, use(picky=1), {"temperature": 1.0, "top_k": 1}, use(picky=0, force=40)
    )
    assert found.token_ids[[1, 4]].tolist() == [3, 40]
    best = torch.log_softmax(torch.from_numpy(logits[1]), -1)
    assert found.logprobs[1].logprob == pytest.approx(float(best[3]), abs=1e-5), "that of the model"


def test_a_row_that_makes_it_raise_fails_alone(caplog):
    found = assert_as_on_the_host(random_logits(4), use(picky=4), {}, use(picky=13), use(picky=2, force=9))
    assert found.errors == {2: "logits processor 'picky' failed: KeyError: 'unlucky'"}
    assert len(caplog.records) == 2, "once on the host, once for the device"


@pytest.mark.parametrize("value", [-torch.inf, torch.nan, torch.inf])
def test_a_processor_that_leaves_nothing_fails_its_row_alone(value):
    logits = random_logits(3)
    logits[2] = np.nan
    found = assert_as_on_the_host(logits, use(fill=value), {}, {})
    assert found.errors == {0: ALL_PROCESSED, 2: NOT_FINITE}
