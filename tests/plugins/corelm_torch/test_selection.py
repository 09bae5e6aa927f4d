"""What is highest in a row."""

import numpy as np
from corelm_torch.selection import best_tokens, highest
from sequences import random_logits


def test_best_tokens():
    logits = random_logits(5)
    logits[1, 40], logits[2, 3], logits[3] = np.nan, np.inf, -np.inf
    assert best_tokens(logits).tolist() == [logits[0].argmax(), -1, -1, -1, logits[4].argmax()]


def test_highest_equals_sorting():
    """Also where many are equal, and where the tokens do not fill the groups."""
    generator = np.random.default_rng(3)
    for vocabulary in (1, 63, 64, 65, 1000):
        for values in (5, 10**6):
            row = generator.integers(0, values, vocabulary).astype(np.float32)
            for count in {1, 2, 15, 16, 17, 40, vocabulary} & set(range(vocabulary + 1)):
                least = np.sort(row)[-count]
                assert highest(row, count).tolist() == np.flatnonzero(row >= least).tolist()
