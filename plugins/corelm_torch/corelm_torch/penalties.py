"""Presence, frequency and repetition penalties.

Their state is the distinct tokens of each penalised sequence: one token more costs O(1), and an edit touches the logits
of those tokens alone, not the whole vocabulary.
"""

from array import array
from dataclasses import dataclass

import numpy as np
import torch

from corelm.api import SequenceStart
from corelm_torch.arrays import Floats, Ints


@dataclass(frozen=True, kw_only=True, slots=True)
class PenaltyEdit:
    """The penalties of N tokens of some rows."""

    places: Ints
    """[N]: in the flattened logits [R, vocabulary]; none twice."""
    counts: Floats
    """[N]: how often the output contains the token."""
    repetition: Floats
    frequency: Floats
    presence: Floats

    def apply(self, logits: torch.Tensor) -> None:
        """Edit `logits` in place."""
        device = logits.device
        places, counts = torch.from_numpy(self.places).to(device), torch.from_numpy(self.counts).to(device)
        repetition, frequency = (
            torch.from_numpy(self.repetition).to(device),
            torch.from_numpy(self.frequency).to(device),
        )
        presence = torch.from_numpy(self.presence).to(device)
        flat = logits.view(-1)
        scores = flat.index_select(0, places)
        scores = torch.where(scores > 0, scores / repetition, scores * repetition)
        scores = scores - frequency * counts - presence * (counts > 0)
        flat.index_copy_(0, places, scores)


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


class Penalties:
    """The token counts of all sequences with penalties, by their row in the sequence table."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._counts: dict[int, TokenCounts] = {}

    def add(self, row: int, start: SequenceStart) -> None:
        """Count the tokens of the sequence in `row`, if it has penalties."""
        params = start.sampling
        if params.repetition_penalty != 1 or params.frequency_penalty or params.presence_penalty:
            self._counts[row] = TokenCounts(start)

    def drop(self, row: int) -> None:
        """Forget the sequence in `row`."""
        self._counts.pop(row, None)

    def append(self, rows: Ints, token_ids: Ints) -> None:
        """Count a sampled token for each of `rows`."""
        for index, counts in self._penalised(rows):
            counts.add(int(token_ids[index]))

    def edit(self, rows: Ints) -> PenaltyEdit | None:
        """The edit of the logits of `rows` [R]; None if there is nothing."""
        penalised = self._penalised(rows)
        if not penalised:
            return None
        lengths = [len(counts.ids) for _, counts in penalised]
        firsts = np.array([index * self._vocab_size for index, _ in penalised])
        strengths = np.array([[each.repetition, each.frequency, each.presence] for _, each in penalised], np.float32)
        repetition, frequency, presence = np.repeat(strengths.T, lengths, axis=1)
        return PenaltyEdit(
            places=np.concatenate([np.asarray(counts.ids) for _, counts in penalised]) + np.repeat(firsts, lengths),
            counts=np.concatenate([np.asarray(counts.counts) for _, counts in penalised]),
            repetition=repetition,
            frequency=frequency,
            presence=presence,
        )

    def _penalised(self, rows: Ints) -> list[tuple[int, TokenCounts]]:
        """The penalised ones among `rows`, with their index there."""
        if not self._counts:
            return []
        return [(index, self._counts[row]) for index, row in enumerate(rows.tolist()) if row in self._counts]
