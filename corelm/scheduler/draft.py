"""A step's plan while it is made."""

from corelm.contracts.executor import SequenceSlice, SequenceStart
from corelm.scheduler.sequence import Sequence


class Draft:
    """What the next step computes so far, within a budget of tokens."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        """Tokens that may still be added."""
        self.slices: dict[int, SequenceSlice] = {}
        self.started: dict[int, SequenceStart] = {}

    def add(self, sequence: Sequence) -> None:
        """Compute what a sequence knows and has not computed, as far as the budget goes."""
        start = sequence.num_computed
        num_tokens = min(len(sequence.token_ids) + sequence.in_flight - start, self.budget)
        sequence.num_computed = end = start + num_tokens
        sample = end == len(sequence.token_ids) + sequence.in_flight and sequence.max_tokens > 0
        sequence.in_flight += sample
        forced, sequence.untold = sequence.untold, ()
        if sequence.num_sent is None:
            self.started[sequence.seq_id] = _start(sequence)
            sequence.num_sent, forced = 0, ()
        blocks: tuple[int, ...] = ()
        if sequence.num_sent < len(sequence.block_ids):
            blocks = tuple(sequence.block_ids[sequence.num_sent :])
            sequence.num_sent = len(sequence.block_ids)
        self.slices[sequence.seq_id] = SequenceSlice(
            seq_id=sequence.seq_id,
            start=start,
            num_tokens=num_tokens,
            new_block_ids=blocks,
            sample=sample,
            forced=forced,
            allowed=sequence.allowed if sample else None,
        )
        self.budget -= num_tokens

    def withdraw(self, sequence: Sequence) -> None:
        """Take out a sequence that loses its blocks, if it is in."""
        planned = self.slices.pop(sequence.seq_id, None)
        if planned is None:
            return
        self.budget += planned.num_tokens
        sequence.num_computed = planned.start
        if self.started.pop(sequence.seq_id, None):
            sequence.num_sent = None


def _start(sequence: Sequence) -> SequenceStart:
    return SequenceStart(
        seq_id=sequence.seq_id,
        token_ids=list(sequence.token_ids),
        prompt_len=sequence.prompt_len,
        sampling=sequence.sampling,
        bad_words=sequence.bad_words,
        end_token_ids=sequence.end_token_ids,
        embed=sequence.embed,
    )
