"""Logits processors of plugins, applied to the rows of the sequences that use them."""

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from corelm.api import LogitsProcessor, LogitsRow, SequenceStart
from corelm_torch.arrays import Ints

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessorEdit:
    """What one processor has to do in a step."""

    name: str
    processor: LogitsProcessor
    indices: Ints
    """[U]: the rows of the logits that use it."""
    rows: list[LogitsRow]
    """[U]"""

    def apply(self, logits: torch.Tensor) -> dict[int, str]:
        """Edit `logits` [R, vocabulary] in place. Returns, by row, why the processor failed; such rows stay unchanged.

        The processor sees a copy of its rows and nothing else. If it raises, it is given them again one by one, so that
        a row of which it cannot make anything fails alone.
        """
        error = self._try(logits, slice(None))
        if error is None:
            return {}
        logger.error("logits processor %r failed", self.name, exc_info=error)
        failed = {}
        for number, index in enumerate(self.indices.tolist()):
            error = self._try(logits, slice(number, number + 1))
            if error is not None:
                failed[index] = f"logits processor {self.name!r} failed: {type(error).__name__}: {error}"
        return failed

    def _try(self, logits: torch.Tensor, part: slice) -> BaseException | None:
        """Process a part of the rows, or return what was raised and change nothing."""
        indices = torch.from_numpy(self.indices[part]).to(logits.device)
        processed = logits.index_select(0, indices)
        try:
            self.processor.apply(processed, self.rows[part])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported as the failure of the rows
            return error
        logits.index_copy_(0, indices, processed)
        return None


class Processors:
    """Which processors the sequences use, by their row in the sequence table."""

    def __init__(self, available: Mapping[str, LogitsProcessor]) -> None:
        self._available = available
        self._arguments: dict[int, tuple[int, Mapping[str, object]]] = {}
        """Length of the prompt, and arguments by the name of the processor."""

    def add(self, row: int, start: SequenceStart) -> None:
        """Keep what the sequence in `row` asks for, if it asks for anything."""
        if start.sampling.logits_processors:
            self._arguments[row] = start.prompt_len, start.sampling.logits_processors

    def drop(self, row: int) -> None:
        """Forget the sequence in `row`."""
        self._arguments.pop(row, None)

    def edits(self, rows: Ints, tokens: np.ndarray, ends: Ints) -> list[ProcessorEdit]:
        """What is to be done to the logits of `rows` [R], whose sequences are ``tokens[row, :end]``."""
        asking = [(i, row) for i, row in enumerate(rows.tolist()) if row in self._arguments] if self._arguments else []
        users: dict[str, dict[int, LogitsRow]] = defaultdict(dict)
        for index, row in asking:
            prompt_len, arguments = self._arguments[row]
            token_ids = tokens[row, : ends[index]].data.toreadonly()
            for name, argument in arguments.items():
                users[name][index] = LogitsRow(argument, token_ids, prompt_len)
        return [
            ProcessorEdit(
                name=name,
                processor=processor,
                indices=np.array(list(users[name]), np.int64),
                rows=list(users[name].values()),
            )
            for name, processor in self._available.items()
            if name in users
        ]
