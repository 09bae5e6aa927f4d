"""Tokens that may not be sampled, and biases: `allowed_token_ids`, `bad_words`, `min_tokens` and `logit_bias`."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from corelm.api import SequenceStart
from corelm_torch.arrays import Floats, Ints

NO_TOKENS: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskEdit:
    """Which of the logits [R, vocabulary], flattened, are masked or biased in one step."""

    restricted: Ints
    """The rows that may sample nothing but what `allowed` holds of them."""
    allowed: Ints
    banned: Ints
    biased: Ints
    """No place twice."""
    biases: Floats
    """One for each of `biased`."""

    def apply(self, logits: torch.Tensor) -> None:
        """Edit `logits` in place: what is masked becomes -inf."""
        flat = logits.view(-1)
        if len(self.restricted):
            allowed = torch.from_numpy(self.allowed).to(logits.device)
            kept = flat.index_select(0, allowed)
            logits.index_fill_(0, torch.from_numpy(self.restricted).to(logits.device), -torch.inf)
            flat.index_copy_(0, allowed, kept)
        if len(self.banned):
            flat.index_fill_(0, torch.from_numpy(self.banned).to(logits.device), -torch.inf)
        if len(self.biased):
            biased, biases = torch.from_numpy(self.biased), torch.from_numpy(self.biases)
            flat.index_add_(0, biased.to(logits.device), biases.to(logits.device))


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
        self.allowed = None if params.allowed_token_ids is None else known(params.allowed_token_ids)
        self.biased = known(list(params.logit_bias))
        self.biases = np.array([params.logit_bias[token] for token in self.biased.tolist()], np.float32)
        self._min_tokens = params.min_tokens
        self._end_tokens = known(start.end_token_ids)
        self._phrases = phrases_of(start.bad_words)
        self._words = known(self._phrases.words)
        self._vocab_size = vocab_size

    def banned(self, history: Ints, output_len: int) -> Iterator[Ints]:
        """Tokens that may not follow `history`, all tokens of the sequence, `output_len` of which are output."""
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

    def edit(self, rows: Ints, tokens: np.ndarray, ends: Ints, output_lens: Ints) -> MaskEdit | None:
        """The edit of the logits of `rows` [R], whose sequences are ``tokens[row, :end]``; None if there is nothing."""
        restricted: list[int] = []
        allowed, banned, biased = [NO_TOKENS], [NO_TOKENS], [NO_TOKENS]
        biases: list[Floats] = [np.zeros(0, np.float32)]
        touched = [(index, row) for index, row in enumerate(rows.tolist()) if row in self._masks] if self._masks else []
        for index, row in touched:
            masks, first = self._masks[row], index * self._vocab_size
            if masks.allowed is not None:
                restricted.append(index)
                allowed.append(masks.allowed + first)
            history = tokens[row, : ends[index]]
            banned += [ids + first for ids in masks.banned(history, int(output_lens[index]))]
            biased.append(masks.biased + first)
            biases.append(masks.biases)
        edit = MaskEdit(
            restricted=np.array(restricted, np.int64),
            allowed=np.concatenate(allowed),
            banned=np.concatenate(banned),
            biased=np.concatenate(biased),
            biases=np.concatenate(biases),
        )
        return edit if restricted or len(edit.banned) or len(edit.biased) else None
