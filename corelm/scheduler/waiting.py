"""The waiting sequences, in the order of the policy's keys."""

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from corelm.scheduler.sequence import Sequence

Entry = tuple[Any, float, int, Sequence]
"""Key, arrival, seq_id, and the sequence itself."""


class WaitingQueue:
    """A heap with removal from anywhere. Push and pop cost O(log n).

    Keys that cannot be compared are forgotten, all of them, so that those who wait go by arrival.
    """

    def __init__(self, on_incomparable: Callable[[BaseException], None]) -> None:
        self._on_incomparable = on_incomparable
        self._heap: list[Entry] = []
        self._members: dict[int, Entry] = {}
        """The entry of each sequence that waits, by seq_id; others in the heap are of sequences taken out."""

    def __len__(self) -> int:
        return len(self._members)

    def push(self, sequence: Sequence) -> None:
        """Add a sequence whose `key` is set. Equal keys go by arrival, then by id."""
        entry = self._members[sequence.seq_id] = _entry(sequence)
        try:
            heapq.heappush(self._heap, entry)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - keys are a policy's
            self._forget_keys(error)

    def peek(self) -> Sequence | None:
        """The first sequence, or None."""
        try:
            while self._heap and self._members.get(self._heap[0][2]) is not self._heap[0]:
                heapq.heappop(self._heap)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - keys are a policy's
            self._forget_keys(error)
        return self._heap[0][3] if self._heap else None

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out; False if it is not in the queue."""
        if self._members.pop(sequence.seq_id, None) is None:
            return False
        # Entries of removed sequences go when they reach the top, or here before they outnumber the living.
        if len(self._heap) > 2 * len(self._members) + 64:
            self._rebuild()
        return True

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences in order. O(n log n): for dynamic policies."""
        try:
            return iter([entry[3] for entry in sorted(self._members.values())])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - keys are a policy's
            self._forget_keys(error)
            return iter([entry[3] for entry in sorted(self._members.values())])

    def _rebuild(self) -> None:
        self._heap = list(self._members.values())
        try:
            heapq.heapify(self._heap)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - keys are a policy's
            self._forget_keys(error)

    def _forget_keys(self, error: BaseException) -> None:
        for sequence in [entry[3] for entry in self._members.values()]:
            sequence.key = None
            self._members[sequence.seq_id] = _entry(sequence)
        self._heap = list(self._members.values())
        heapq.heapify(self._heap)
        self._on_incomparable(error)


def _entry(sequence: Sequence) -> Entry:
    return sequence.key, sequence.arrival, sequence.seq_id, sequence
