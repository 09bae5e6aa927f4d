"""Tokens that may not be sampled, and biases: `allowed_token_ids`, `bad_words`, `min_tokens` and `logit_bias`."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from corelm.api import SequenceStart
from corelm_torch.arrays import Floats, Ints

NO_TOKENS: Ints = np.zeros(0, np.int64)


class RowMask(NamedTuple):
    """What is masked or biased for one row in one step."""

    allowed: Ints | None
    """All that may be sampled, if that is limited."""
    banned: Ints
    biased: Ints
    """No token twice."""
    biases: Floats
    """One for each of `biased`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskEdit:
    """Which of the logits [D, vocabulary], flattened, are masked or biased in one step."""

    restricted: Ints
    """The rows that may sample nothing but what `allowed` holds of them."""
    allowed: Ints
    banned: Ints
    biased: Ints
    """No place twice."""
    biases: Floats
    """One for each of `biased`."""

    @classmethod
    def of(cls, masks: Mapping[int, RowMask], vocab_size: int) -> "MaskEdit":
        """The edit for the masks of some rows, at least one."""
        flat = [(row * vocab_size, mask) for row, mask in masks.items()]
        return cls(
            restricted=np.array([row for row, mask in masks.items() if mask.allowed is not None], np.int64),
            allowed=np.concatenate(
                [NO_TOKENS if mask.allowed is None else mask.allowed + first for first, mask in flat]
            ),
            banned=np.concatenate([mask.banned + first for first, mask in flat]),
            biased=np.concatenate([mask.biased + first for first, mask in flat]),
            biases=np.concatenate([mask.biases for mask in masks.values()]),
        )

    def apply(self, logits: Floats) -> None:
        """Edit `logits` in place: what is masked becomes -inf."""
        if len(self.restricted):
            kept = logits.take(self.allowed)
            logits[self.restricted] = -np.inf
            logits.put(self.allowed, kept)
        logits.put(self.banned, -np.inf)
        logits.put(self.biased, logits.take(self.biased) + self.biases)


class Phrases:
    """Bad words: single tokens, and longer ones by the token before their last one.

    So a step looks only at those that may be complete.
    """

    def __init__(self, bad_words: tuple[tuple[int, ...], ...]) -> None:
        self.words = [word[0] for word in bad_words if len(word) == 1]
        self._by_next_to_last: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
        for word in bad_words:
            if len(word) > 1:
                self._by_next_to_last[word[-2]].append((list(word[:-1]), word[-1]))

    def ends(self, history: Ints) -> list[int]:
        """The last tokens of the longer ones that `history` has all other tokens of."""
        phrases = self._by_next_to_last.get(int(history[-1]), ()) if self._by_next_to_last else ()
        return [last for beginning, last in phrases if history[-len(beginning) :].tolist() == beginning]


@lru_cache(maxsize=64)
def phrases_of(bad_words: tuple[tuple[int, ...], ...]) -> Phrases:
    """Made once for all sequences of a request."""
    return Phrases(bad_words)


class SequenceMasks:
    """The masks and biases of one sequence. Ids beyond the vocabulary cannot be sampled and are left out."""

    def __init__(self, start: SequenceStart, vocab_size: int) -> None:
        def known(ids: object) -> Ints:
            tokens = np.array(ids, np.int64)
            return tokens[tokens < vocab_size]

        params = start.sampling
        self._allowed = None if params.allowed_token_ids is None else known(params.allowed_token_ids)
        self._biased = known(list(params.logit_bias))
        self._biases = np.array([params.logit_bias[token] for token in self._biased.tolist()], np.float32)
        self._min_tokens = params.min_tokens
        self._end_tokens = known(start.end_token_ids)
        self._phrases = phrases_of(start.bad_words)
        self._words = known(self._phrases.words)
        self._vocab_size = vocab_size

    def after(self, history: Ints, output_len: int) -> RowMask | None:
        """What holds after `history`, all tokens of the sequence, of which `output_len` are output; None if nothing."""
        banned = np.concatenate(list(self._banned(history, output_len)))
        if self._allowed is None and not len(banned) and not len(self._biased):
            return None
        return RowMask(self._allowed, banned, self._biased, self._biases)

    def _banned(self, history: Ints, output_len: int) -> Iterator[Ints]:
        yield self._words
        if output_len < self._min_tokens:
            yield self._end_tokens
        if ends := self._phrases.ends(history):
            yield np.array([token for token in ends if token < self._vocab_size], np.int64)


class TokenMasks:
    """The masks of all sequences that have any, by their row in the sequence table."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._masks: dict[int, SequenceMasks] = {}

    def add(self, row: int, start: SequenceStart) -> None:
        """Keep what the sequence in `row` asks for, if it asks for anything."""
        params = start.sampling
        if params.allowed_token_ids is not None or params.logit_bias or start.bad_words or start.end_token_ids:
            self._masks[row] = SequenceMasks(start, self._vocab_size)

    def drop(self, row: int) -> None:
        """Forget the sequence in `row`."""
        self._masks.pop(row, None)

    def of(self, rows: Ints, tokens: np.ndarray, ends: Ints, output_lens: Ints) -> dict[int, RowMask]:
        """What is masked in this step, by index in `rows` [R], whose sequences are ``tokens[row, :end]``."""
        found = {}
        for index, row in enumerate(rows.tolist()) if self._masks else ():
            if row in self._masks:
                mask = self._masks[row].after(tokens[row, : ends[index]], int(output_lens[index]))
                if mask is not None:
                    found[index] = mask
        return found
