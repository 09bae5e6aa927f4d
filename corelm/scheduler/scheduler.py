"""Continuous batching: which sequences compute how many tokens in the next step."""

from collections.abc import Callable, Iterator

from corelm.contracts.executor import SequenceSlice, SequenceStart, StepPlan, StepResult
from corelm.contracts.scheduling import SchedulingPolicy
from corelm.scheduler.block_pool import BlockPool
from corelm.scheduler.prefix_cache import PrefixCache
from corelm.scheduler.sequence import Sequence
from corelm.scheduler.waiting import WaitingQueue

FREE_SHARE_TO_ADMIT = 0.01
"""Share of the pool that stays free when a sequence joins others, so that it is not preempted in the next step."""


class Scheduler:
    """Owns every block and every sequence between arrival and end.

    Running sequences decode first, then go on with their prompts in chunks, then waiting ones are admitted, all
    within a budget of tokens. When a running sequence needs a block and none is free, the policy names one that
    loses its blocks; it waits again and is computed anew later.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        *,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        clock: Callable[[], float],
        prefix_cache: bool = False,
    ) -> None:
        self.policy = policy
        self.block_size = block_size
        self._cache = PrefixCache(block_size) if prefix_cache else None
        self.pool = BlockPool(num_blocks, self._cache)
        # Every running sequence can then compute at least one token in every step.
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        self.max_num_batched_tokens = max_num_batched_tokens
        self.preemptions = 0
        self._clock = clock
        self._dynamic = type(policy).order is not SchedulingPolicy.order
        self._waiting = WaitingQueue()
        self._running: dict[int, Sequence] = {}
        self._released: list[int] = []
        self._step_id = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. The caller made sure that it fits into an empty pool."""
        sequence.key = self.policy.key(sequence.view)
        self._waiting.push(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence, wherever it is, and free its blocks."""
        if self._running.pop(sequence.seq_id, None):
            self._release(sequence)
        else:
            self._waiting.remove(sequence)

    def schedule(self) -> StepPlan | None:
        """The plan of the next step; None if nothing can run."""
        slices: dict[int, SequenceSlice] = {}
        started: list[SequenceStart] = []
        budget = self._schedule_running(slices)
        if budget is not None:
            self._admit(slices, started, budget)
        if not slices:
            return None
        self._step_id += 1
        released, self._released = tuple(self._released), []
        return StepPlan(step_id=self._step_id, released=released, started=tuple(started), slices=tuple(slices.values()))

    def update(self, plan: StepPlan, result: StepResult) -> Iterator[tuple[Sequence, list[int]]]:
        """Enter a step's result; yields each sequence that got tokens, with them.

        A sequence may be removed while it is yielded.
        """
        for item, tokens in zip(plan.slices, result.token_ids, strict=True):
            sequence = self._running[item.seq_id]
            end = sequence.num_computed = item.start + item.num_tokens
            if self._cache is not None and end // self.block_size > item.start // self.block_size:
                self._remember(self._cache, sequence, item.start // self.block_size, end // self.block_size)
            if tokens:
                sequence.token_ids.extend(tokens)
                yield sequence, tokens

    def check_integrity(self) -> None:
        """Raise `AssertionError` if the bookkeeping contradicts itself. For tests and debug runs."""
        self.pool.check_integrity(block for s in self._running.values() for block in s.block_ids)
        for sequence in self._running.values():
            if len(sequence.block_ids) * self.block_size < sequence.num_computed:
                raise AssertionError(f"sequence {sequence.seq_id} has computed more than its blocks hold")
        for sequence in self._waiting:
            if sequence.block_ids or sequence.num_computed or sequence.seq_id in self._running:
                raise AssertionError(f"waiting sequence {sequence.seq_id} holds blocks or runs")

    def _schedule_running(self, slices: dict[int, SequenceSlice]) -> int | None:
        """Plan the running sequences. Returns the budget that is left, None if one was preempted."""
        budget = self.max_num_batched_tokens
        preempted = False
        prefills: list[Sequence] = []
        for sequence in list(self._running.values()):
            if len(sequence.token_ids) - sequence.num_computed > 1:
                prefills.append(sequence)
                continue
            if sequence.seq_id not in self._running:
                continue
            if sequence.num_computed == len(sequence.block_ids) * self.block_size:
                victims = self._make_room(sequence, slices)
                preempted = preempted or bool(victims)
                budget += sum(victims)
                if sequence.seq_id not in self._running:
                    continue
                block = tuple(self.pool.allocate(1))
                sequence.block_ids += block
            else:
                block = ()
            slices[sequence.seq_id] = SequenceSlice(
                seq_id=sequence.seq_id, start=sequence.num_computed, num_tokens=1, new_block_ids=block, sample=True
            )
            budget -= 1
        for sequence in prefills:
            if budget and sequence.seq_id in self._running:
                budget -= self._prefill(sequence, slices, budget)
        return None if preempted else budget

    def _make_room(self, sequence: Sequence, slices: dict[int, SequenceSlice]) -> list[int]:
        """Preempt until a block is free or `sequence` itself lost its place.

        Returns, for each victim, how many tokens it had been given in this step.
        """
        given_back: list[int] = []
        while not self.pool.num_free and sequence.seq_id in self._running:
            victim = self._victim()
            planned = slices.pop(victim.seq_id, None)
            given_back.append(planned.num_tokens if planned else 0)
            del self._running[victim.seq_id]
            self._release(victim)
            victim.num_computed = 0
            victim.preemptions += 1
            self.preemptions += 1
            self.add(victim)
        return given_back

    def _victim(self) -> Sequence:
        by_id = {sequence.request_id: sequence for sequence in self._running.values()}
        name = self.policy.victim([sequence.view for sequence in by_id.values()], self._clock())
        if name not in by_id:
            raise RuntimeError(f"policy {type(self.policy).__name__} chose victim {name!r}, which does not run")
        return by_id[name]

    def _release(self, sequence: Sequence) -> None:
        self.pool.free(sequence.block_ids)
        sequence.block_ids = []
        self._released.append(sequence.seq_id)

    def _prefill(
        self, sequence: Sequence, slices: dict[int, SequenceSlice], budget: int, blocks: tuple[int, ...] = ()
    ) -> int:
        """Plan the next chunk of a sequence's known tokens; returns its length."""
        left = len(sequence.token_ids) - sequence.num_computed
        chunk = min(left, budget)
        slices[sequence.seq_id] = SequenceSlice(
            seq_id=sequence.seq_id,
            start=sequence.num_computed,
            num_tokens=chunk,
            new_block_ids=blocks,
            sample=chunk == left,
        )
        return chunk

    def _admit(self, slices: dict[int, SequenceSlice], started: list[SequenceStart], budget: int) -> None:
        reserve = int(self.pool.num_blocks * FREE_SHARE_TO_ADMIT) + 1
        for sequence in self._candidates():
            if not budget or len(self._running) >= self.max_num_seqs:
                return
            shared = self._shared(sequence)
            # All blocks of the known tokens at once: a chunked prompt never loses a race for its own blocks.
            count = -(-len(sequence.token_ids) // self.block_size) - len(shared)
            taken = count + sum(map(self.pool.is_idle, shared))
            if taken + (reserve if self._running else 0) > self.pool.num_free:
                return
            self._waiting.remove(sequence)
            self._running[sequence.seq_id] = sequence
            self.pool.share(shared)
            sequence.block_ids = shared + self.pool.allocate(count)
            sequence.num_computed = len(shared) * self.block_size
            if sequence.cached_tokens is None:
                sequence.cached_tokens = sequence.num_computed
            started.append(
                SequenceStart(
                    seq_id=sequence.seq_id,
                    token_ids=list(sequence.token_ids),
                    prompt_len=sequence.prompt_len,
                    sampling=sequence.sampling,
                )
            )
            budget -= self._prefill(sequence, slices, budget, tuple(sequence.block_ids))

    def _shared(self, sequence: Sequence) -> list[int]:
        """Blocks that the prefix cache has for a sequence. Its last token is always computed, for its logits."""
        if self._cache is None:
            return []
        self._cache.extend(sequence.block_hashes, sequence.token_ids, len(sequence.token_ids) - 1)
        return list(self._cache.match(sequence.block_hashes[: (len(sequence.token_ids) - 1) // self.block_size]))

    def _remember(self, cache: PrefixCache, sequence: Sequence, first: int, end: int) -> None:
        """Enter blocks `first` to `end` - 1 of a sequence, which are now full, into the prefix cache."""
        cache.extend(sequence.block_hashes, sequence.token_ids, end * self.block_size)
        for block, digest in zip(sequence.block_ids[first:end], sequence.block_hashes[first:end], strict=True):
            cache.insert(block, digest)

    def _candidates(self) -> Iterator[Sequence]:
        """Waiting sequences in the policy's order; the caller removes each from the queue or stops."""
        if not self._dynamic:
            while (sequence := self._waiting.peek()) is not None:
                yield sequence
            return
        if not len(self._waiting) or len(self._running) >= self.max_num_seqs:
            return
        by_id = {sequence.request_id: sequence for sequence in self._waiting}
        views = [sequence.view for sequence in by_id.values()]
        for name in self.policy.order(views, self._clock()):
            sequence = by_id.pop(name, None)
            if sequence is None:
                raise RuntimeError(
                    f"policy {type(self.policy).__name__} ordered {name!r}, which does not wait or came twice"
                )
            yield sequence
