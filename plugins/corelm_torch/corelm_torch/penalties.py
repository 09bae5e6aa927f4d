"""Presence, frequency and repetition penalties.

Their state is the distinct tokens of each penalised sequence: one token more costs O(1), and an edit touches the logits
of those tokens alone, not the whole vocabulary.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corelm.api import SamplingParams, SequenceStart
from corelm_torch.arrays import Floats, Ints


def penalised(params: SamplingParams) -> bool:
    """Whether there are any penalties."""
    return params.repetition_penalty != 1 or bool(params.frequency_penalty or params.presence_penalty)


class TokenCounts:
    """The distinct tokens of one sequence, and how often its output contains each."""

    def __init__(self, start: SequenceStart) -> None:
        params = start.sampling
        self.repetition = params.repetition_penalty
        self.frequency = params.frequency_penalty
        self.presence = params.presence_penalty
        # The prompt matters to the repetition penalty alone.
        tokens = start.token_ids if self.repetition != 1 else start.token_ids[start.prompt_len :]
        prompt_len = len(tokens) - (len(start.token_ids) - start.prompt_len)
        ids, kinds = np.unique(np.array(tokens, np.int64), return_inverse=True)
        self.ids = array("q", ids.tobytes())
        self.counts = array("f", np.bincount(kinds[prompt_len:], minlength=len(ids)).astype(np.float32).tobytes())
        self._places = {token: place for place, token in enumerate(ids.tolist())}

    def add(self, token: int) -> None:
        """Count an output token."""
        place = self._places.setdefault(token, len(self.ids))
        if place == len(self.ids):
            self.ids.append(token)
            self.counts.append(0.0)
        self.counts[place] += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PenaltyEdit:
    """The penalties of N tokens of some rows."""

    places: Ints
    """[N]: in the flattened logits [D, vocabulary]; none twice."""
    counts: Floats
    """[N]: how often the output contains the token."""
    repetition: Floats
    frequency: Floats
    presence: Floats

    @classmethod
    def of(cls, counts: Mapping[int, TokenCounts], vocab_size: int) -> "PenaltyEdit":
        """The edit for the counts of some rows, at least one."""
        each = counts.values()
        lengths = [len(one.ids) for one in each]
        strengths = np.array([[one.repetition, one.frequency, one.presence] for one in each], np.float32)
        repetition, frequency, presence = np.repeat(strengths.T, lengths, axis=1)
        return cls(
            places=np.concatenate([np.asarray(one.ids) + row * vocab_size for row, one in counts.items()]),
            counts=np.concatenate([np.asarray(one.counts) for one in each]),
            repetition=repetition,
            frequency=frequency,
            presence=presence,
        )

    def apply(self, logits: Floats) -> None:
        """Edit `logits` in place."""
        scores = logits.take(self.places)
        scores = np.where(scores > 0, scores / self.repetition, scores * self.repetition)
        logits.put(self.places, scores - self.frequency * self.counts - self.presence * (self.counts > 0))


class Penalties:
    """The token counts of all sequences with penalties, by their row in the sequence table."""

    def __init__(self) -> None:
        self._counts: dict[int, TokenCounts] = {}

    def add(self, row: int, start: SequenceStart) -> None:
        """Count the tokens of the sequence in `row`, if it has penalties."""
        if penalised(start.sampling):
            self._counts[row] = TokenCounts(start)

    def drop(self, row: int) -> None:
        """Forget the sequence in `row`."""
        self._counts.pop(row, None)

    def append(self, rows: Ints, token_ids: Ints) -> None:
        """Count a sampled token for each of `rows`."""
        for index, counts in self._penalised(rows):
            counts.add(int(token_ids[index]))

    def of(self, rows: Ints) -> dict[int, TokenCounts]:
        """What is counted and penalised in this step, by index in `rows` [R]."""
        return {index: counts for index, counts in self._penalised(rows) if counts.ids}

    def _penalised(self, rows: Ints) -> list[tuple[int, TokenCounts]]:
        """The penalised ones among `rows`, with their index there."""
        if not self._counts:
            return []
        return [(index, self._counts[row]) for index, row in enumerate(rows.tolist()) if row in self._counts]
