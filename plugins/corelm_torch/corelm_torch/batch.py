"""From a plan, a delta, to the flattened arrays of one step."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corelm.api import LogitsProcessor, SequenceSlice, SequenceStart, StepPlan
from corelm_torch.arrays import Ints
from corelm_torch.details import Details, SamplingTable

UNKNOWN = -1
NO_INTS: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRows:
    """P rows of the flattened arrays whose next token is known, and of which its log-probability is to be reported."""

    rows: Ints
    """[P]"""
    token_ids: Ints
    """[P]: the next tokens."""
    top: Ints
    """[P]: most probable tokens to be reported with it."""
    seq_ids: Ints
    """[P]: the sequences."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One step's S slices and their M tokens, flattened in the plan's order."""

    token_ids: Ints
    """[M]; `UNKNOWN` for a token that an earlier step samples, and of which `SequenceTable.append` did not tell yet."""
    positions: Ints
    """[M]"""
    token_rows: Ints
    """[M]: the row of the token's sequence in the table that made the batch."""
    slots: Ints
    """[M]: where the token's keys and values go, block id * block_size + offset."""
    starts: Ints
    """[S]: first position of each slice."""
    lengths: Ints
    """[S]: tokens of each slice."""
    block_tables: Ints
    """[S, blocks of the longest context]; past a sequence's own blocks stands the padding block."""
    fresh_blocks: Ints
    """Blocks that hold nothing yet that a sequence may read."""
    stale_slots: Ints
    """Slots behind the positions from which on sequences start within a block, which hold what others left there."""
    table_rows: Ints
    """[S]: the row of each slice's sequence in the table."""
    lives: Ints
    """[S]: whose row that is: the number of sequences that were given it before."""
    sampled: Ints
    """[R]: the slices whose next token is to be sampled."""
    details: Details
    """What is asked of some of `sampled` beyond the token with the highest logit."""
    scored: ScoredRows | None
    """The prompt tokens to be scored, in the order of the slices."""
    embedded: Ints
    """[E]: the slices whose last token's hidden state is the embedding of its sequence."""

    @property
    def ends(self) -> Ints:
        """[S]: length of each sequence's context after the step."""
        return self.starts + self.lengths

    @property
    def offsets(self) -> Ints:
        """[S]: row of each slice's first token in the flattened arrays."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def last_rows(self) -> Ints:
        """[R]: row of the last token of each slice in `sampled`."""
        return (self.offsets + self.lengths - 1)[self.sampled]

    @property
    def embedded_rows(self) -> Ints:
        """[E]: row of the last token of each slice in `embedded`."""
        return (self.offsets + self.lengths - 1)[self.embedded]

    @property
    def detailed(self) -> Ints:
        """[D]: the indices in `sampled` of which all logits are needed; of the others the highest one's token is."""
        return self.details.indices

    @property
    def output_rows(self) -> Ints:
        """[R + P]: the rows whose logits are needed, those of `sampled` and then those of `scored`."""
        return self.last_rows if self.scored is None else np.concatenate([self.last_rows, self.scored.rows])


class SequenceTable:
    """Every sequence the executor holds, a row each: tokens, block table and sampling parameters."""

    def __init__(
        self,
        *,
        rows: int,
        max_model_len: int,
        block_size: int,
        padding_block: int,
        vocab_size: int,
        logits_processors: Mapping[str, LogitsProcessor] = {},
    ) -> None:
        self._block_size = block_size
        self._padding_block = padding_block
        self._row_of: dict[int, int] = {}
        self._free = list(range(rows))[::-1]
        # Large, but the system commits only the pages that are written.
        self._tokens = np.zeros((rows, max_model_len + 1), np.int32)
        self._blocks = np.zeros((rows, -(-max_model_len // block_size)), np.int32)
        self._num_blocks = np.zeros(rows, np.int64)
        self._prompt_lens = np.zeros(rows, np.int64)
        self._prompt_logprobs = np.full(rows, -1)
        self._embeds = np.zeros(rows, np.bool_)
        self._lives = np.zeros(rows, np.int64)
        self._sampling = SamplingTable(rows=rows, vocab_size=vocab_size, logits_processors=logits_processors)

    def apply(self, plan: StepPlan) -> Batch:
        """Bring the table up to date with `plan` and build its batch.

        The tokens that a batch before it samples may still be unknown, if `waits` does not say otherwise.
        """
        for seq_id in plan.released:
            row = self._row_of.pop(seq_id, None)
            if row is not None:
                self._free.append(row)
                self._lives[row] += 1
                self._sampling.drop(row)
        for start in plan.started:
            self._add(start)
        for piece in plan.slices:
            if piece.forced:
                self._force(piece)
        growing = [piece for piece in plan.slices if piece.new_block_ids]
        stale = [slot for piece in growing for slot in self._begins_within(piece)]
        fresh = [block for piece in growing for block in self._extend(piece)]
        batch = self._build(plan.slices, np.array(fresh, np.int64), np.array(stale, np.int64))
        self._tokens[batch.table_rows[batch.sampled], batch.ends[batch.sampled]] = UNKNOWN
        return batch

    def build(self, slices: tuple[SequenceSlice, ...]) -> Batch:
        """The batch for some of the slices, or for parts of them, of the plan that was applied last."""
        return self._build(slices, NO_INTS, NO_INTS)

    def waits(self, plan: StepPlan) -> bool:
        """Whether a sequence of `plan` has an unknown token that edits of its next logits need."""
        if not self._sampling.readers:
            return False
        last = [
            (row, piece.start + piece.num_tokens - 1)
            for piece in plan.slices
            if piece.sample and (row := self._row_of.get(piece.seq_id)) in self._sampling.readers
        ]
        return any(self._tokens[place] == UNKNOWN for place in last)

    def append(self, batch: Batch, token_ids: Ints) -> None:
        """Append the `token_ids` of ``batch.sampled``, -1 for errors, to the sequences that are still there."""
        alive = (self._lives[batch.table_rows] == batch.lives)[batch.sampled]
        rows, token_ids = batch.table_rows[batch.sampled][alive], token_ids[alive]
        # A sequence that failed may be in the next step already, which must find a token to compute.
        token_ids = np.maximum(token_ids, 0)
        self._tokens[rows, batch.ends[batch.sampled][alive]] = token_ids
        self._sampling.append(rows, token_ids)

    def _add(self, start: SequenceStart) -> None:
        row = self._free.pop()
        self._row_of[start.seq_id] = row
        self._tokens[row, : len(start.token_ids)] = start.token_ids
        self._num_blocks[row] = 0
        self._prompt_lens[row] = start.prompt_len
        wanted = start.sampling.prompt_logprobs
        self._prompt_logprobs[row] = -1 if wanted is None else wanted
        self._embeds[row] = start.embed
        self._sampling.add(row, start)

    def _force(self, piece: SequenceSlice) -> None:
        row, first = self._row_of[piece.seq_id], piece.start + 1
        self._tokens[row, first : first + len(piece.forced)] = piece.forced
        self._sampling.append(np.full(len(piece.forced), row), np.array(piece.forced, np.int64))

    def _begins_within(self, piece: SequenceSlice) -> range:
        """The slots of a block behind the position at which a sequence that brings no blocks yet begins within it."""
        offset = piece.start % self._block_size
        if not offset or self._num_blocks[self._row_of[piece.seq_id]]:
            return range(0)
        first = piece.new_block_ids[piece.start // self._block_size] * self._block_size
        return range(first + offset, first + self._block_size)

    def _extend(self, piece: SequenceSlice) -> tuple[int, ...]:
        """Append the slice's blocks; return those without positions that were computed before."""
        row = self._row_of[piece.seq_id]
        held = int(self._num_blocks[row])
        self._blocks[row, held : held + len(piece.new_block_ids)] = piece.new_block_ids
        self._num_blocks[row] = held + len(piece.new_block_ids)
        computed = -(-piece.start // self._block_size)
        return piece.new_block_ids[max(computed - held, 0) :]

    def _build(self, slices: tuple[SequenceSlice, ...], fresh_blocks: Ints, stale_slots: Ints) -> Batch:
        rows = np.array([self._row_of[piece.seq_id] for piece in slices], np.int64)
        starts = np.array([piece.start for piece in slices], np.int64)
        lengths = np.array([piece.num_tokens for piece in slices], np.int64)
        sampled = np.flatnonzero(np.array([piece.sample for piece in slices], np.bool_))
        offsets = np.cumsum(lengths) - lengths
        positions = np.arange(lengths.sum()) + np.repeat(starts - offsets, lengths)
        row_of_token = np.repeat(rows, lengths)
        blocks = self._blocks[row_of_token, positions // self._block_size].astype(np.int64)
        sampled_rows, ends = rows[sampled], (starts + lengths)[sampled]
        output_lens = ends - self._prompt_lens[sampled_rows]
        masks = [slices[index].allowed for index in sampled.tolist()]
        allowed = {index: mask for index, mask in enumerate(masks) if mask is not None}
        return Batch(
            token_ids=self._tokens[row_of_token, positions].astype(np.int64),
            positions=positions,
            token_rows=row_of_token,
            slots=blocks * self._block_size + positions % self._block_size,
            starts=starts,
            lengths=lengths,
            block_tables=self._tables(rows, starts + lengths),
            fresh_blocks=fresh_blocks,
            stale_slots=stale_slots,
            table_rows=rows,
            lives=self._lives[rows],
            sampled=sampled,
            details=self._sampling.details(sampled_rows, self._tokens, ends, output_lens, allowed),
            scored=self._scored(slices, row_of_token, positions),
            embedded=np.flatnonzero(self._embeds[rows] & (starts + lengths == self._prompt_lens[rows])),
        )

    def _tables(self, rows: Ints, ends: Ints) -> Ints:
        width = -(-int(ends.max(initial=0)) // self._block_size)
        own = np.arange(width) < self._num_blocks[rows, None]
        return np.where(own, self._blocks[rows, :width], self._padding_block).astype(np.int64)

    def _scored(self, slices: tuple[SequenceSlice, ...], row_of_token: Ints, positions: Ints) -> ScoredRows | None:
        """The rows before a prompt token of sequences that asked for `prompt_logprobs`."""
        top = self._prompt_logprobs[row_of_token]
        scored = np.flatnonzero((top >= 0) & (positions + 1 < self._prompt_lens[row_of_token]))
        if not len(scored):
            return None
        seq_ids = np.repeat([piece.seq_id for piece in slices], [piece.num_tokens for piece in slices])
        return ScoredRows(
            rows=scored,
            token_ids=self._tokens[row_of_token[scored], positions[scored] + 1].astype(np.int64),
            top=top[scored],
            seq_ids=seq_ids[scored],
        )
