"""Logits processors of plugins, applied to the rows of the sequences that use them."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corelm.api import LogitsProcessor, LogitsRow, SequenceStart
from corelm_torch.arrays import Floats, Ints

logger = logging.getLogger(__name__)

Process = Callable[[Floats, list[LogitsRow]], None]
"""Changes logits [U, vocabulary] in place, row i for the i-th sequence."""


class ProcessedRow(NamedTuple):
    """The sequence of one row, in one step, and what it gives the processors."""

    arguments: Mapping[str, object]
    """By the name of the processor."""
    token_ids: memoryview
    """Prompt and output so far, read-only."""
    prompt_len: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessorEdit:
    """What one processor has to do in a step."""

    name: str
    process: Process
    indices: Ints
    """[U]: the rows of the logits that use it."""
    rows: list[LogitsRow]
    """[U]"""

    def apply(self, logits: Floats) -> dict[int, str]:
        """Edit `logits` [D, vocabulary] in place. Returns, by row, why the processor failed; such rows stay unchanged.

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

    def _try(self, logits: Floats, part: slice) -> BaseException | None:
        """Process a part of the rows, or return what was raised and change nothing."""
        indices = self.indices[part]
        processed = logits[indices]
        try:
            self.process(processed, self.rows[part])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported as the failure of the rows
            return error
        logits[indices] = processed
        return None


class Processors:
    """Which processors the sequences use, by their row in the sequence table."""

    def __init__(self, available: Mapping[str, LogitsProcessor]) -> None:
        self._available = {name: _on_tensors(processor) for name, processor in available.items()}
        self._asking: dict[int, tuple[Mapping[str, object], int]] = {}
        """Arguments by the name of the processor, and length of the prompt."""

    def add(self, row: int, start: SequenceStart) -> None:
        """Keep what the sequence in `row` asks for, if it asks for anything."""
        if start.sampling.logits_processors:
            self._asking[row] = start.sampling.logits_processors, start.prompt_len

    def drop(self, row: int) -> None:
        """Forget the sequence in `row`."""
        self._asking.pop(row, None)

    def of(self, rows: Ints, tokens: np.ndarray, ends: Ints) -> dict[int, ProcessedRow]:
        """What is to be processed in this step, by index in `rows` [R], whose sequences are ``tokens[row, :end]``."""
        found = {}
        for index, row in enumerate(rows.tolist()) if self._asking else ():
            if row in self._asking:
                arguments, prompt_len = self._asking[row]
                found[index] = ProcessedRow(arguments, tokens[row, : ends[index]].data.toreadonly(), prompt_len)
        return found

    def edits(self, processed: Mapping[int, ProcessedRow]) -> list[ProcessorEdit]:
        """What each processor has to do for the rows of the logits, in the order of the setting."""
        users: dict[str, dict[int, LogitsRow]] = defaultdict(dict)
        for index, row in processed.items():
            for name, argument in row.arguments.items():
                users[name][index] = LogitsRow(argument, row.token_ids, row.prompt_len)
        return [
            ProcessorEdit(
                name=name,
                process=process,
                indices=np.array(list(users[name]), np.int64),
                rows=list(users[name].values()),
            )
            for name, process in self._available.items()
            if name in users
        ]


def _on_tensors(processor: LogitsProcessor) -> Process:
    """The processor's function of the array behind the tensor that it is promised."""
    # Slow to import, and needed only where a processor is in use.
    import torch

    def process(logits: Floats, rows: list[LogitsRow]) -> None:
        processor.apply(torch.from_numpy(logits), rows)

    return process
