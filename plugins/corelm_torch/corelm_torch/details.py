"""Which rows of a step need more than their most probable token, and what they need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from corelm.api import LogitsProcessor, SequenceStart
from corelm_torch.arrays import Ints
from corelm_torch.grammar_masks import GrammarEdit
from corelm_torch.penalties import Penalties, PenaltyEdit, penalised
from corelm_torch.processors import ProcessorEdit, Processors
from corelm_torch.sampler import SamplingRows
from corelm_torch.token_masks import MaskEdit, TokenMasks

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """What is asked of D of the R rows to be sampled. Nothing but the highest logit's token is asked of the others."""

    indices: Ints
    """[D]: ascending, in the R rows."""
    sampling: SamplingRows
    """How to sample, for each of the D."""
    edits: tuple[GrammarEdit | MaskEdit | PenaltyEdit, ...]
    """What to do to the logits [D, vocabulary], in this order."""
    processing: list[ProcessorEdit]
    """What logits processors have to do after that, in this order."""

    @property
    def reported(self) -> Ints:
        """Those of the D whose log-probabilities are to be reported."""
        return np.flatnonzero(self.sampling.logprobs >= 0)


class SamplingTable:
    """What every sequence asks for its next tokens, by its row in the sequence table."""

    def __init__(self, *, rows: int, vocab_size: int, logits_processors: Mapping[str, LogitsProcessor]) -> None:
        self._vocab_size = vocab_size
        self._sampling = SamplingRows.zeros(rows)
        self._masks = TokenMasks(vocab_size)
        self._penalties = Penalties()
        self._processors = Processors(logits_processors)
        self.readers: set[int] = set()
        """Rows whose next logits are edited by what the tokens before them are."""

    def add(self, row: int, start: SequenceStart) -> None:
        """Keep what the sequence in `row` asks for."""
        self._sampling.set(row, start.sampling)
        self._masks.add(row, start)
        self._penalties.add(row, start)
        self._processors.add(row, start)
        params = start.sampling
        if penalised(params) or params.logits_processors or any(len(word) > 1 for word in start.bad_words):
            self.readers.add(row)

    def drop(self, row: int) -> None:
        """Forget the sequence in `row`."""
        self.readers.discard(row)
        self._masks.drop(row)
        self._penalties.drop(row)
        self._processors.drop(row)

    def append(self, rows: Ints, token_ids: Ints) -> None:
        """Count a token for each of `rows`."""
        self._penalties.append(rows, token_ids)

    def details(
        self, rows: Ints, tokens: np.ndarray, ends: Ints, output_lens: Ints, allowed: Mapping[int, bytes]
    ) -> Details:
        """What is asked of `rows` [R] in this step; their sequences are ``tokens[row, :end]``.

        `allowed` has the masks of grammars, by index in `rows`.
        """
        masks = self._masks.of(rows, tokens, ends, output_lens)
        penalties = self._penalties.of(rows)
        processed = self._processors.of(rows, tokens, ends)
        detailed = (self._sampling.temperature[rows] > 0) | (self._sampling.logprobs[rows] >= 0)
        detailed[[*allowed, *masks, *penalties, *processed]] = True
        indices = np.flatnonzero(detailed)
        place = {index: number for number, index in enumerate(indices.tolist())}
        edits: list[GrammarEdit | MaskEdit | PenaltyEdit] = []
        if allowed:
            edits.append(GrammarEdit(masks=_renumbered(allowed, place)))
        if masks:
            edits.append(MaskEdit.of(_renumbered(masks, place), self._vocab_size))
        if penalties:
            edits.append(PenaltyEdit.of(_renumbered(penalties, place), self._vocab_size))
        return Details(
            indices=indices,
            sampling=self._sampling.take(rows[indices], output_lens[indices]),
            edits=tuple(edits),
            processing=self._processors.edits(_renumbered(processed, place)),
        )


def _renumbered(found: Mapping[int, Found], place: Mapping[int, int]) -> dict[int, Found]:
    return {place[index]: each for index, each in found.items()}
