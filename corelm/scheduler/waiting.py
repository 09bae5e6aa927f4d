"""The waiting sequences, in the order of the policy's keys."""

import heapq
from collections.abc import Iterator
from typing import Any

from corelm.scheduler.sequence import Sequence


class WaitingQueue:
    """A heap with removal from anywhere. Push and pop cost O(log n)."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, float, int, Sequence]] = []
        self._members: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._members)

    def push(self, sequence: Sequence) -> None:
        """Add a sequence whose `key` is set. Equal keys go by arrival, then by id."""
        heapq.heappush(self._heap, (sequence.key, sequence.arrival, sequence.seq_id, sequence))
        self._members[sequence.seq_id] = sequence

    def peek(self) -> Sequence | None:
        """The first sequence, or None."""
        while self._heap and self._members.get(self._heap[0][2]) is not self._heap[0][3]:
            heapq.heappop(self._heap)
        return self._heap[0][3] if self._heap else None

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out; False if it is not in the queue."""
        if self._members.pop(sequence.seq_id, None) is None:
            return False
        # Entries of removed sequences go when they reach the top, or here before they outnumber the living.
        if len(self._heap) > 2 * len(self._members) + 64:
            self._heap = [entry for entry in self._heap if entry[2] in self._members]
            heapq.heapify(self._heap)
        return True

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences in order. O(n log n): for dynamic policies."""
        return iter(sorted(self._members.values(), key=lambda s: (s.key, s.arrival, s.seq_id)))
