import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from corelm.api import InvalidRequestError, LogitsRow

FILE = Path(__file__).parents[2] / "examples" / "no_repeat_ngram" / "corelm_no_repeat_ngram.py"
VOCABULARY = 12


@pytest.fixture(scope="module")
def processor():
    spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.NoRepeatNgram()


def test_equals_transformers(processor):
    """On texts of few different tokens, which repeat often, all in one call."""
    random = np.random.default_rng(1)
    cases = [(random.integers(0, 4, length), n) for length in (1, 2, 3, 7, 30, 100) for n in (1, 2, 3, 4, 8)]
    logits = torch.randn(len(cases), VOCABULARY)
    expected = torch.cat(
        [
            NoRepeatNGramLogitsProcessor(n)(torch.from_numpy(tokens)[None], logits[number : number + 1].clone())
            for number, (tokens, n) in enumerate(cases)
        ]
    )
    processor.apply(logits, [LogitsRow(n, tokens.data.toreadonly(), 1) for tokens, n in cases])
    assert torch.equal(logits, expected)
    assert len({int(count) for count in (logits == -torch.inf).sum(dim=1)}) > 3


@pytest.mark.parametrize("argument", [1, 100])
def test_arguments_that_are_fine(processor, argument):
    processor.check(argument)


@pytest.mark.parametrize("argument", [0, 101, -1, True, None, "2", 2.0, [2], {"n": 2}])
def test_other_arguments_are_refused(processor, argument):
    with pytest.raises(InvalidRequestError, match="must be an integer between 1 and 100"):
        processor.check(argument)
