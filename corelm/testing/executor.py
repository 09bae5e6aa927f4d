"""An executor that computes nothing but notices every mistake in a plan."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence

from corelm.contracts.executor import (
    ExecutorInfo,
    Progress,
    SequenceSlice,
    SequenceStart,
    SimpleExecutor,
    StepPlan,
    StepResult,
)

ALPHABET = b"abcdefghijklmnopqrstuvwxyz ,.\n"


def fake_next_token(token_ids: Sequence[int], seed: int = 0) -> int:
    """The token that the fake executor samples after `token_ids`: a letter that depends on all of them."""
    digest = zlib.crc32(repr((seed, list(token_ids))).encode())
    return ALPHABET[digest % len(ALPHABET)]


def fake_continuation(token_ids: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """What a sequence that starts with `token_ids` generates when it runs alone."""
    tokens = list(token_ids)
    for _ in range(count):
        tokens.append(fake_next_token(tokens, seed))
    return tokens[len(token_ids) :]


class _Held:
    """What the executor keeps of a sequence."""

    def __init__(self, start: SequenceStart) -> None:
        self.tokens = list(start.token_ids)
        self.blocks: list[int] = []
        self.computed: int | None = None
        self.seed = 0 if start.sampling.greedy else start.sampling.seed or 0


class FakeExecutor(SimpleExecutor):
    """Deterministic. Its KV cache holds token ids, and sampling reads the whole context back through the block table.

    So a block that is shared, freed too early or written out of turn changes the output; a plan that breaks the
    contract raises `AssertionError`. `on_step` is called with each plan before it runs: let it wait, record or raise.
    """

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        vocab_size: int = 258,
        max_model_len: int = 1024,
        max_num_seqs: int = 2**31,
        max_num_batched_tokens: int = 2**31,
        on_step: Callable[[StepPlan], None] | None = None,
    ) -> None:
        self.info = ExecutorInfo(
            num_blocks=num_blocks,
            block_size=block_size,
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            dtype="float32",
            device="fake",
            capabilities=frozenset({"prefix_cache"}),
        )
        self.on_step = on_step
        self.unhealthy: Exception | None = None
        """Raised by `check_health` when set."""
        self.shut_down = 0
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._held: dict[int, _Held] = {}
        self._cache: dict[int, int] = {}
        self._step_id = 0

    def load(self, progress: Progress) -> ExecutorInfo:
        progress(1.0, "nothing to load")
        return self.info

    def check_health(self) -> None:
        if self.unhealthy is not None:
            raise self.unhealthy

    def shutdown(self) -> None:
        self.shut_down += 1

    def execute(self, plan: StepPlan) -> StepResult:
        if self.on_step is not None:
            self.on_step(plan)
        self._apply(plan)
        self._check(plan)
        return StepResult(step_id=plan.step_id, token_ids=[self._compute(item) for item in plan.slices])

    def _apply(self, plan: StepPlan) -> None:
        for seq_id in plan.released:
            self._held.pop(seq_id, None)
        for start in plan.started:
            assert start.seq_id not in self._held, f"sequence {start.seq_id} was started twice"
            assert 0 < start.prompt_len <= len(start.token_ids), "a sequence needs a prompt"
            assert start.sampling.seed is not None, "the engine sets a seed"
            assert all(0 <= token < self.info.vocab_size for token in start.token_ids), "no such token"
            self._held[start.seq_id] = _Held(start)
        for item in plan.slices:
            self._held[item.seq_id].blocks += item.new_block_ids

    def _check(self, plan: StepPlan) -> None:
        assert plan.step_id == self._step_id + 1, "steps are numbered one after the other"
        self._step_id = plan.step_id
        ids = [item.seq_id for item in plan.slices]
        assert len(set(ids)) == len(ids) <= self._max_num_seqs, "a sequence twice in a step, or too many"
        assert sum(item.num_tokens for item in plan.slices) <= self._max_num_batched_tokens, "budget exceeded"
        owners = Counter(block for held in self._held.values() for block in held.blocks)
        assert all(0 <= block < self.info.num_blocks for block in owners), "no such block"
        for item in plan.slices:
            written = self._held[item.seq_id].blocks[item.start // self.info.block_size :]
            assert all(owners[block] == 1 for block in written), "a block that another sequence holds is written"

    def _compute(self, item: SequenceSlice) -> list[int]:
        held = self._held[item.seq_id]
        end = item.start + item.num_tokens
        assert item.num_tokens > 0, "an empty slice"
        if held.computed is None:
            assert item.start % self.info.block_size == 0, "a shared beginning consists of whole blocks"
        else:
            assert item.start == held.computed, "a slice starts where the last one ended"
        assert end <= min(len(held.tokens), len(held.blocks) * self.info.block_size), "a slice beyond tokens or blocks"
        for position in range(item.start, end):
            self._cache[self._slot(held, position)] = held.tokens[position]
        held.computed = end
        if not item.sample:
            return []
        assert end == len(held.tokens), "sampling needs all known tokens"
        context = [self._cache[self._slot(held, position)] for position in range(end)]
        token = fake_next_token(context, held.seed)
        held.tokens.append(token)
        return [token]

    def _slot(self, held: _Held, position: int) -> int:
        size = self.info.block_size
        return held.blocks[position // size] * size + position % size
