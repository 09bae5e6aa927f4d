"""What grammars allow, as masks of bits."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corelm_torch.arrays import Floats

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
ADDENDS: Floats = np.where(_BITS == 1, np.float32(0), np.float32(-np.inf))
"""[256, 8]: what a byte of a mask adds to the logits of its tokens. Looked up, a row takes half the time that its bits
take to be unpacked and used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GrammarEdit:
    """The masks of some rows."""

    masks: Mapping[int, bytes]
    """By row: see `corelm.api.SequenceSlice.allowed`."""

    def apply(self, logits: Floats) -> None:
        """Edit `logits` [D, vocabulary] in place: what is not allowed becomes -inf."""
        with np.errstate(invalid="ignore"):  # a logit that is inf becomes NaN, and is an error like before
            for row, mask in self.masks.items():
                addends = ADDENDS.take(np.frombuffer(mask, np.uint8), axis=0).reshape(-1)
                logits[row] += addends[: logits.shape[1]]
