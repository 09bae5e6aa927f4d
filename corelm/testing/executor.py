"""An executor that computes nothing but notices every mistake in a plan."""

import math
import struct
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
from corelm.outputs import TokenLogprobs
from corelm.testing.grammar import allowed_tokens

ALPHABET = b"abcdefghijklmnopqrstuvwxyz ,.\n"
EMBEDDING_SIZE = 8
CAPABILITIES = frozenset({"prefix_cache", "copy_blocks", "logprobs", "embeddings", "grammar"})
NOTHING_ALLOWED = "no token is allowed"


def fake_distribution(token_ids: Sequence[int], seed: int = 0) -> list[tuple[int, float]]:
    """What the fake executor predicts after `token_ids`: every letter with its log-probability, the best first."""
    digest = zlib.crc32(repr((seed, list(token_ids))).encode())
    steps = [-i * (1 + (digest >> 8) / 2**24) / 4 for i in range(len(ALPHABET))]
    total = math.log(math.fsum(map(math.exp, steps)))
    return [(ALPHABET[(digest + 7 * i) % len(ALPHABET)], step - total) for i, step in enumerate(steps)]


def fake_next_token(token_ids: Sequence[int], seed: int = 0, allowed: Sequence[int] | None = None) -> int:
    """The token that the fake executor samples after `token_ids`: a letter that depends on all of them.

    Only where none is `allowed` it is another token.
    """
    letters = [letter for letter, _ in fake_distribution(token_ids, seed)]
    if allowed is None:
        return letters[0]
    others = allowed[zlib.crc32(repr((seed, list(token_ids))).encode()) % len(allowed)]
    return next((letter for letter in letters if letter in allowed), others)


def fake_continuation(token_ids: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """What a sequence that starts with `token_ids` generates when it runs alone."""
    tokens = list(token_ids)
    for _ in range(count):
        tokens.append(fake_next_token(tokens, seed))
    return tokens[len(token_ids) :]


def fake_embedding(token_ids: Sequence[int]) -> bytes:
    """The embedding that the fake executor makes of a prompt: `EMBEDDING_SIZE` numbers that depend on all of it."""
    numbers = [zlib.crc32(repr((axis, list(token_ids))).encode()) / 2**31 - 1 for axis in range(EMBEDDING_SIZE)]
    length = math.hypot(*numbers)
    return struct.pack(f"<{EMBEDDING_SIZE}f", *(number / length for number in numbers))


class _Held:
    """What the executor keeps of a sequence."""

    def __init__(self, start: SequenceStart) -> None:
        self.tokens = list(start.token_ids)
        self.blocks: list[int] = []
        self.computed: int | None = None
        self.prompt_len = start.prompt_len
        self.embed = start.embed
        self.sampling = start.sampling
        self.seed = 0 if start.sampling.greedy or start.sampling.top_k == 1 else start.sampling.seed or 0


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
        num_swap_blocks: int = 0,
        pipeline_depth: int = 1,
        capabilities: frozenset[str] = CAPABILITIES,
        on_step: Callable[[StepPlan], None] | None = None,
    ) -> None:
        self.info = ExecutorInfo(
            num_blocks=num_blocks,
            block_size=block_size,
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            dtype="float32",
            device="fake",
            capabilities=capabilities,
            embedding_size=EMBEDDING_SIZE if "embeddings" in capabilities else 0,
            num_swap_blocks=num_swap_blocks,
            pipeline_depth=pipeline_depth,
        )
        self.on_step = on_step
        self.unhealthy: Exception | None = None
        """Raised by `check_health` when set."""
        self.shut_down = 0
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._held: dict[int, _Held] = {}
        self._cache: dict[int, list[int]] = {}
        """Token ids by block, then by offset."""
        self._swapped: dict[int, list[int]] = {}
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
        result = StepResult(
            step_id=plan.step_id, token_ids=[], logprobs={}, prompt_logprobs={}, embeddings={}, errors={}
        )
        for item in plan.slices:
            result.token_ids.append(self._compute(item, result))
        return result

    def _apply(self, plan: StepPlan) -> None:
        for seq_id in plan.released:
            self._held.pop(seq_id, None)
        for source, target in plan.copies:
            self._cache[target] = list(self._cache[source])
        for source, target in plan.swap_out:
            assert 0 <= target < self.info.num_swap_blocks, "no such swap block"
            self._swapped[target] = list(self._cache[source])
        for source, target in plan.swap_in:
            self._cache[target] = list(self._swapped[source])
        for start in plan.started:
            assert start.seq_id not in self._held, f"sequence {start.seq_id} was started twice"
            assert 0 < start.prompt_len <= len(start.token_ids), "a sequence needs a prompt"
            assert start.sampling.seed is not None, "the engine sets a seed"
            assert all(0 <= token < self.info.vocab_size for token in start.token_ids), "no such token"
            self._held[start.seq_id] = _Held(start)
        for item in plan.slices:
            held = self._held[item.seq_id]
            held.blocks += item.new_block_ids
            if item.forced:
                assert item.start == len(held.tokens) - 1 >= held.prompt_len, "forced tokens follow a sampled one"
                held.tokens += item.forced

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

    def _compute(self, item: SequenceSlice, result: StepResult) -> list[int]:
        held = self._held[item.seq_id]
        end = item.start + item.num_tokens
        assert item.num_tokens > 0, "an empty slice"
        assert held.computed in (None, item.start), "a slice starts where the last one ended"
        assert end <= min(len(held.tokens), len(held.blocks) * self.info.block_size), "a slice beyond tokens or blocks"
        for position in range(item.start, end):
            self._write(held, position)
        held.computed = end
        if held.sampling.prompt_logprobs is not None:
            positions = range(item.start + 1, min(end + 1, held.prompt_len))
            result.prompt_logprobs[item.seq_id] = [
                _logprobs(held, held.tokens[position], held.tokens[:position], held.sampling.prompt_logprobs)
                for position in positions
            ]
        if held.embed and end == held.prompt_len:
            result.embeddings[item.seq_id] = fake_embedding(self._context(held, end))
        if not item.sample:
            return []
        assert not held.embed, "nothing is sampled for a sequence that is to be embedded"
        assert end == len(held.tokens), "sampling needs all known tokens"
        context = self._context(held, end)
        allowed = None if item.allowed is None else self._allowed(item.allowed)
        if allowed == []:
            result.errors[item.seq_id] = NOTHING_ALLOWED
            return []
        token = fake_next_token(context, held.seed, allowed)
        if held.sampling.logprobs is not None:
            result.logprobs[item.seq_id] = [_logprobs(held, token, context, held.sampling.logprobs)]
        held.tokens.append(token)
        return [token]

    def _allowed(self, mask: bytes) -> list[int]:
        assert len(mask) == 4 * -(-self.info.vocab_size // 32), "a mask has a bit for each token"
        allowed = allowed_tokens(mask)
        assert not allowed or allowed[-1] < self.info.vocab_size, "a mask allows a token that there is not"
        return allowed

    def _context(self, held: _Held, end: int) -> list[int]:
        context = [self._read(held, position) for position in range(end)]
        assert context == held.tokens, "the blocks of a sequence do not hold its tokens"
        return context

    def _write(self, held: _Held, position: int) -> None:
        block, offset = held.blocks[position // self.info.block_size], position % self.info.block_size
        self._cache.setdefault(block, [-1] * self.info.block_size)[offset] = held.tokens[position]

    def _read(self, held: _Held, position: int) -> int:
        block, offset = held.blocks[position // self.info.block_size], position % self.info.block_size
        return self._cache[block][offset]


def _logprobs(held: _Held, token: int, context: Sequence[int], count: int) -> TokenLogprobs:
    ranked = fake_distribution(context, held.seed)
    ids = [letter for letter, _ in ranked]
    rank = ids.index(token) if token in ids else len(ids)
    return TokenLogprobs(
        token_id=token,
        logprob=ranked[rank][1] if rank < len(ids) else -99.0,
        rank=rank + 1,
        top_ids=tuple(ids[:count]),
        top_logprobs=tuple(logprob for _, logprob in ranked[:count]),
    )
