"""Plays the engine for one executor: gives out blocks, numbers steps, and checks the form of every result."""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from corelm.contracts.executor import Executor, ExecutorInfo, SequenceSlice, SequenceStart, StepPlan, StepResult
from corelm.errors import describe
from corelm.outputs import TokenLogprobs
from corelm.sampling import SamplingParams
from corelm.testing.grammar import mask_of


@dataclass(eq=False, kw_only=True)
class Live:
    """A sequence as the engine keeps it."""

    seq_id: int
    tokens: list[int]
    """Prompt and output."""
    prompt_len: int
    sampling: SamplingParams
    bad_words: tuple[tuple[int, ...], ...] = ()
    end_token_ids: tuple[int, ...] = ()
    embed: bool = False
    allowed: Collection[int] | None = None
    """What its next token may be, if that is limited."""
    untold: tuple[int, ...] = ()
    """The last of its tokens, while they are forced and the executor does not know them."""
    computed: int = 0
    """Positions in the KV cache once every submitted step is done."""
    in_flight: int = 0
    """Tokens that submitted steps will sample."""
    blocks: list[int] = field(default_factory=list)
    known_blocks: int | None = None
    """How many of `blocks` the executor was told; None before it was told of the sequence."""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    embedding: bytes | None = None

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    @property
    def left(self) -> int:
        """Positions to compute before the next token can be sampled."""
        return len(self.tokens) + self.in_flight - self.computed


class Bench:
    """One loaded executor and the sequences that run on it."""

    def __init__(self, executor: Executor, info: ExecutorInfo, *, max_num_batched_tokens: int) -> None:
        self.executor = executor
        self.info = info
        self.block_size = info.block_size
        self._budget = max_num_batched_tokens
        self._free = list(range(info.num_blocks))
        random.Random(info.num_blocks).shuffle(self._free)
        self._users: Counter[int] = Counter()
        self._released: list[int] = []
        self._lives = 0
        self._steps = 0

    def prompt(self, length: int, number: int = 0) -> list[int]:
        """Token ids without sense; another `number` gives others."""
        draw = random.Random(1000 * number + length)
        return [draw.randrange(self.info.vocab_size) for _ in range(length)]

    def lengths(self, *, room: int) -> list[int]:
        """Prompt lengths around the boundaries of blocks that leave `room` for output."""
        size = self.block_size
        wanted = {1, 2, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1}
        return sorted(length for length in wanted if 1 <= length <= self.info.max_model_len - room)

    def sequence(
        self,
        tokens: Sequence[int],
        *,
        prompt_len: int | None = None,
        bad_words: Iterable[Sequence[int]] = (),
        end_token_ids: Iterable[int] = (),
        embed: bool = False,
        **sampling: Any,
    ) -> Live:
        """A new sequence; greedy unless `sampling` says otherwise."""
        self._lives += 1
        return Live(
            seq_id=self._lives,
            tokens=list(tokens),
            prompt_len=prompt_len or len(tokens),
            sampling=SamplingParams(**{"temperature": 0.0, "seed": 0, "max_tokens": 0 if embed else None} | sampling),
            bad_words=tuple(map(tuple, bad_words)),
            end_token_ids=tuple(end_token_ids),
            embed=embed,
        )

    def branch(
        self, parent: Live, tokens: Sequence[int], computed: int, **sampling: Any
    ) -> tuple[Live, list[tuple[int, int]]]:
        """A sequence that goes on at `computed` with its parent's beginning, and the copies that this needs."""
        child = self.sequence(tokens, **sampling)
        full, partial = divmod(computed, self.block_size)
        child.blocks = parent.blocks[:full]
        self._users.update(child.blocks)
        child.computed = computed
        if not partial:
            return child, []
        self._grow(child, computed)
        return child, [(parent.blocks[full], child.blocks[full])]

    def force(self, live: Live, tokens: Sequence[int]) -> None:
        """Let a sequence whose last token was sampled go on by tokens that are not."""
        live.tokens += tokens
        live.untold = tuple(tokens)

    def swap_out(self, live: Live, first: int) -> list[tuple[int, int]]:
        """Release a sequence; the pairs that keep its blocks in swap blocks from `first` on."""
        pairs = [(block, first + index) for index, block in enumerate(live.blocks)]
        self.release(live)
        return pairs

    def swap_in(self, live: Live, first: int, computed: int) -> list[tuple[int, int]]:
        """Let a sequence go on at `computed` in new blocks; the pairs that fill them."""
        self._grow(live, computed)
        live.computed = computed
        return [(first + index, block) for index, block in enumerate(live.blocks)]

    def release(self, *lives: Live) -> None:
        """End sequences, or let them lose their blocks: the next plan says so, and may use the blocks already."""
        for live in lives:
            if live.known_blocks is not None:
                self._released.append(live.seq_id)
            self._users.subtract(live.blocks)
            self._free += [block for block in reversed(live.blocks) if not self._users[block]]
            live.blocks, live.known_blocks, live.computed, live.in_flight = [], None, 0, 0

    def plan(
        self, *work: Live | tuple[Live, int], released: Iterable[int] = (), **operations: Iterable[tuple[int, int]]
    ) -> StepPlan:
        """A step that computes all that is left of each sequence, or so many tokens of it."""
        items = [item if isinstance(item, tuple) else (item, item.left) for item in work]
        started = tuple(self._start(live) for live, _ in items if live.known_blocks is None)
        slices = tuple(self._slice(live, count) for live, count in items)
        pairs = {name: tuple(operation) for name, operation in operations.items()}
        self._steps += 1
        gone, self._released = (*self._released, *released), []
        return StepPlan(step_id=self._steps, released=gone, started=started, slices=slices, **pairs)

    def collect(self, plan: StepPlan, handle: Any, lives: Sequence[Live]) -> StepResult:
        """The result of a submitted step, checked and entered into its sequences."""
        with explained("collect()", plan):
            result = self.executor.collect(handle)
        check_form(result, plan)
        for live, item, tokens in zip(lives, plan.slices, result.token_ids, strict=True):
            for token in tokens:
                good = isinstance(token, int) and 0 <= token < self.info.vocab_size
                assert good, (
                    f"StepResult.token_ids must hold Python integers from 0 to vocab_size - 1 "
                    f"({self.info.vocab_size - 1}), not {token!r} of type {type(token).__name__}"
                )
            live.in_flight -= item.sample
            live.tokens += tokens
            live.logprobs += result.logprobs.get(live.seq_id, ())
            live.prompt_logprobs += result.prompt_logprobs.get(live.seq_id, ())
            self._enter_embedding(live, item, result.embeddings.get(live.seq_id))
        return result

    def step(
        self, *work: Live | tuple[Live, int], released: Iterable[int] = (), **operations: Iterable[tuple[int, int]]
    ) -> StepResult:
        """Plan, submit and collect one step."""
        plan = self.plan(*work, released=released, **operations)
        lives = [item[0] if isinstance(item, tuple) else item for item in work]
        return self.collect(plan, self.submit(plan), lives)

    def submit(self, plan: StepPlan) -> Any:
        """Submit a step; its handle."""
        with explained("submit()", plan):
            return self.executor.submit(plan)

    def run(self, *lives: Live, tokens: int, chunk: int = 2**31) -> list[list[int]]:
        """Run sequences together until each has so many output tokens. Prompts go in chunks of at most `chunk`."""
        while unfinished := [live for live in lives if len(live.output) < tokens]:
            self._step_within_budget(unfinished, chunk)
        return [live.output[:tokens] for live in lives]

    def embed(self, *lives: Live, chunk: int = 2**31) -> list[bytes | None]:
        """Run sequences together, in chunks of at most `chunk` tokens, until all that are to be embedded are."""
        while any(live.embed and live.embedding is None for live in lives):
            self._step_within_budget(lives, chunk)
        return [live.embedding for live in lives]

    def alone(self, tokens: Sequence[int], count: int, **sampling: Any) -> list[int]:
        """What a sequence generates that runs alone, from beginning to end. Its blocks are used again afterwards."""
        live = self.sequence(tokens, **sampling)
        (output,) = self.run(live, tokens=count)
        self.release(live)
        return output

    def _step_within_budget(self, lives: Sequence[Live], chunk: int) -> None:
        budget, work = self._budget, []
        for live in lives:
            if count := min(live.left, chunk, budget):
                work.append((live, count))
                budget -= count
        self.step(*work)

    def _enter_embedding(self, live: Live, item: SequenceSlice, data: bytes | None) -> None:
        wanted = live.embed and item.start + item.num_tokens == live.prompt_len
        assert (data is not None) == wanted, (
            "StepResult.embeddings must hold sequences with SequenceStart.embed whose prompt ends with their slice, "
            f"and no others: it has {'none' if data is None else 'one'} for {item}"
        )
        if data is not None:
            size = self.info.embedding_size
            assert [type(data), len(data)] == [bytes, 4 * size], (
                f"StepResult.embeddings must hold ExecutorInfo.embedding_size ({size}) float32 numbers as bytes, not "
                f"{len(data)} bytes in a {type(data).__name__}"
            )
            live.embedding = data

    def _grow(self, live: Live, positions: int) -> None:
        missing = -(-positions // self.block_size) - len(live.blocks)
        assert missing <= len(self._free), (
            f"the suite needs more than the {self.info.num_blocks} KV blocks of {self.block_size} tokens that load() "
            "reported: give at least context.kv_cache_tokens, or raise kv_cache_tokens in your subclass of the suite"
        )
        new = [self._free.pop() for _ in range(missing)]
        self._users.update(new)
        live.blocks += new

    def _start(self, live: Live) -> SequenceStart:
        live.known_blocks, live.untold = 0, ()
        return SequenceStart(
            seq_id=live.seq_id,
            token_ids=list(live.tokens),
            prompt_len=live.prompt_len,
            sampling=live.sampling,
            bad_words=live.bad_words,
            end_token_ids=live.end_token_ids,
            embed=live.embed,
        )

    def _slice(self, live: Live, count: int) -> SequenceSlice:
        start, end = live.computed, live.computed + count
        self._grow(live, end)
        new = tuple(live.blocks[live.known_blocks :])
        sample = count == live.left and live.sampling.max_tokens != 0
        live.known_blocks, live.computed = len(live.blocks), end
        live.in_flight += sample
        forced, live.untold = live.untold, ()
        return SequenceSlice(
            seq_id=live.seq_id,
            start=start,
            num_tokens=count,
            new_block_ids=new,
            sample=sample,
            forced=forced,
            allowed=None if live.allowed is None or not sample else mask_of(live.allowed, self.info.vocab_size),
        )


@contextmanager
def explained(method: str, plan: StepPlan) -> Iterator[None]:
    """Turn what an executor raises into a failure that shows the plan."""
    try:
        yield
    except Exception as error:
        raise AssertionError(
            f"{method} raised {describe(error)} in a step that is in order; it would end the engine. {plan}"
        ) from error


def check_form(result: StepResult, plan: StepPlan) -> None:
    """What can be said of a result without knowing the model."""
    assert isinstance(result, StepResult), f"collect() must return a StepResult, not {type(result).__name__}"
    assert result.step_id == plan.step_id, (
        f"StepResult.step_id must be the plan's: {result.step_id} came back for step {plan.step_id}"
    )
    assert not result.errors, f"a sequence failed that nothing is wrong with: StepResult.errors is {result.errors}"
    assert len(result.token_ids) == len(plan.slices), (
        f"StepResult.token_ids must hold one list per slice, empty where sample is false: "
        f"{len(result.token_ids)} came back for {len(plan.slices)} slices"
    )
    for item, tokens in zip(plan.slices, result.token_ids, strict=True):
        assert len(tokens) == item.sample, (
            f"a slice with sample = {item.sample} must give {int(item.sample)} tokens, not {len(tokens)}: "
            "StepResult.token_ids has one list per slice, in the plan's order"
        )
