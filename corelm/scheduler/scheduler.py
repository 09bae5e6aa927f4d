"""Continuous batching: which sequences compute how many tokens in the next step."""

from collections import deque
from collections.abc import Iterator

from corelm.contracts.executor import SequenceSlice, StepPlan, StepResult
from corelm.contracts.scheduling import ServedTokens
from corelm.errors import describe
from corelm.scheduler.draft import Draft
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.sequence import Sequence
from corelm.scheduler.waiting import WaitingQueue

FREE_SHARE_TO_ADMIT = 0.01
"""Share of the pool that stays free when a sequence joins others, so that it is not preempted in the next step."""


class Scheduler:
    """Owns every block and every sequence between arrival and end.

    Running sequences decode first, then go on with their prompts in chunks, then waiting ones are admitted, all
    within a budget of tokens. When a running sequence needs a block and none is free, the policy names one that
    loses its blocks; it waits again, its keys and values are swapped back or computed anew later.

    Steps may be planned before the results of earlier ones are known: `schedule` counts on the tokens that they will
    sample, `update` enters them in the same order. What was planned for a sequence past its end is dropped.
    """

    def __init__(
        self,
        policy: PolicyGuard,
        memory: KVMemory,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        can_fork: bool = False,
    ) -> None:
        self.policy = policy
        self.memory = memory
        # Every running sequence can then compute at least one token in every step.
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        self.max_num_batched_tokens = max_num_batched_tokens
        self.num_queued = 0
        """First sequences of requests that have not run yet."""
        self.preemptions = 0
        self.swaps = 0
        self.prompt_tokens = 0
        """Of the requests that have begun to run."""
        self.cached_tokens = 0
        """Those that did not have to be computed."""
        self._can_fork = can_fork
        self._reserve = int(memory.pool.num_blocks * FREE_SHARE_TO_ADMIT) + 1
        self._waiting = WaitingQueue(lambda error: policy.fail(f"keys cannot be compared: {describe(error)}", error))
        self._parked: dict[int, Sequence] = {}
        """Paused sequences that lost their blocks."""
        self._running: dict[int, Sequence] = {}
        self._released: list[int] = []
        self._in_flight: deque[list[tuple[Sequence, int]]] = deque()
        """Of each submitted step, the sequences of its slices and their epochs."""
        self._step_id = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + len(self._parked)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. The caller made sure that it fits into an empty pool."""
        sequence.probe = self.memory.cached_tokens
        sequence.key = self.policy.arrival_key(sequence.view)
        self._waiting.push(sequence)
        self.num_queued += 1

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let `child`, whose tokens begin like its parent's, run at once on shared blocks, or else wait."""
        child.probe = self.memory.cached_tokens
        child.cached_tokens = parent.cached_tokens
        if self._can_fork and len(self._running) < self.max_num_seqs and self.memory.fork(parent, child, self._reserve):
            self._running[child.seq_id] = child
        else:
            self._queue(child)

    def resume(self, sequence: Sequence) -> None:
        """Let a paused sequence go on."""
        sequence.paused = False
        if self._parked.pop(sequence.seq_id, None):
            self._queue(sequence)

    def force(self, sequence: Sequence, token_ids: list[int]) -> None:
        """Let a sequence whose tokens are all known go on by tokens that nobody samples."""
        sequence.token_ids += token_ids
        sequence.untold = tuple(token_ids)

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence, wherever it is, and free its blocks."""
        sequence.epoch += 1
        if self._running.pop(sequence.seq_id, None):
            self._released.append(sequence.seq_id)
            self.memory.release(sequence)
            return
        if not self._parked.pop(sequence.seq_id, None):
            self._waiting.remove(sequence)
        self.num_queued -= sequence.cached_tokens is None
        self.memory.forget_swapped(sequence)

    def schedule(self) -> StepPlan | None:
        """The plan of the next step; None if nothing can run before more results are known."""
        draft = Draft(self.max_num_batched_tokens)
        before = self.preemptions
        self._plan_running(draft)
        if self.preemptions == before:
            self._admit(draft, self._candidates())
        if self.policy.is_dynamic and self.policy.is_stalling(idle=not self._running and len(self._waiting) > 0):
            self._admit(draft, iter(sorted(self._waiting, key=lambda sequence: sequence.arrival)))
        while not draft.slices and self._is_stuck():
            self._preempt(self._victim())
            self._admit(draft, self._candidates())
        operations = self.memory.take_operations()
        if not draft.slices and not operations:
            return None
        self._step_id += 1
        self._in_flight.append(
            [(sequence, sequence.epoch) for sequence in map(self._running.__getitem__, draft.slices)]
        )
        released, self._released = tuple(self._released), []
        return StepPlan(
            step_id=self._step_id,
            released=released,
            started=tuple(draft.started.values()),
            slices=tuple(draft.slices.values()),
            **operations,
        )

    def update(self, plan: StepPlan, result: StepResult) -> Iterator[tuple[Sequence, list[int]]]:
        """Enter the result of the oldest submitted step.

        Yields each sequence that got tokens, with them, and those that wanted none once their prompt is computed.
        Sequences may be removed, forked, forced and resumed meanwhile.
        """
        size = self.memory.block_size
        served: list[ServedTokens] = []
        for (sequence, epoch), item, tokens in zip(
            self._in_flight.popleft(), plan.slices, result.token_ids, strict=True
        ):
            if sequence.epoch != epoch:
                continue
            sequence.in_flight -= item.sample
            end = item.start + item.num_tokens
            if end // size > item.start // size and item.seq_id not in result.errors:
                self.memory.remember(sequence, item.start, end)
            if self.policy.accounts:
                charged = max(item.start, sequence.charged)
                sequence.charged = max(end, charged)
                prompt = max(min(end, sequence.prompt_len) - charged, 0)
                served.append(ServedTokens(sequence.view, prompt, len(item.forced) + len(tokens)))
            if tokens:
                sequence.token_ids.extend(tokens)
                sequence.paused = sequence.lockstep
                yield sequence, tokens
            elif not sequence.max_tokens and end == sequence.prompt_len:
                yield sequence, tokens
        if served:
            self.policy.served(served)

    def distrust(self, sequence: Sequence) -> None:
        """A sequence failed, perhaps by what its blocks hold: nobody else shall use them."""
        self.memory.distrust(sequence)

    def check_integrity(self) -> None:
        """Raise `AssertionError` if the bookkeeping contradicts itself. For tests and debug runs."""
        waiting = [*self._waiting, *self._parked.values()]
        self.memory.check_integrity(self._running.values(), waiting)
        if any(sequence.seq_id in self._running for sequence in waiting):
            raise AssertionError("a sequence waits and runs")
        if any(not sequence.paused for sequence in self._parked.values()):
            raise AssertionError("a parked sequence is not paused")

    def _queue(self, sequence: Sequence) -> None:
        sequence.key = self.policy.key(sequence.view)
        self._waiting.push(sequence)

    def _plan_running(self, draft: Draft) -> None:
        """Plan the running sequences: those that decode, then those with forced tokens, then prompts."""
        size = self.memory.block_size
        running, slices = self._running, draft.slices
        before = self.preemptions
        longer: list[Sequence] = []
        # Most of what scheduling costs is spent here: what nearly every sequence needs is written out.
        for seq_id, sequence in list(running.items()):
            computed = sequence.num_computed
            left = len(sequence.token_ids) + sequence.in_flight - computed
            if left > 1:
                longer.append(sequence)
                continue
            if not left or sequence.paused or (sequence.in_flight and self._must_wait(sequence)):
                continue
            if self.preemptions > before and seq_id not in running:
                continue
            num_blocks = len(sequence.block_ids)
            if computed < num_blocks * size and sequence.num_sent == num_blocks and sequence.max_tokens:
                slices[seq_id] = SequenceSlice(
                    seq_id=seq_id, start=computed, num_tokens=1, sample=True, allowed=sequence.allowed
                )
                sequence.num_computed = computed + 1
                sequence.in_flight += 1
                draft.budget -= 1
                continue
            if self._has_room(sequence, draft):
                draft.add(sequence)
        longer.sort(key=lambda sequence: sequence.num_computed < sequence.prompt_len)
        for sequence in longer:
            if draft.budget and sequence.seq_id in running and self._has_room(sequence, draft):
                draft.add(sequence)

    def _is_stuck(self) -> bool:
        """Whether all that run are paused until one that waits has run."""
        if self._in_flight or not self._running or not len(self._waiting):
            return False
        return all(sequence.paused for sequence in self._running.values())

    def _must_wait(self, sequence: Sequence) -> bool:
        """Whether a sequence cannot be planned before its tokens in flight are known."""
        if sequence.lockstep or sequence.allowed is not None:
            return True
        return sequence.num_output + sequence.in_flight >= sequence.max_tokens

    def _has_room(self, sequence: Sequence, draft: Draft) -> bool:
        """Give a sequence the blocks it lacks for its known tokens; False if it lost its place instead.

        Others are preempted until blocks are free. Victims may be in the draft already.
        """
        while len(sequence.block_ids) * self.memory.block_size < len(sequence.token_ids) + sequence.in_flight:
            while not self.memory.pool.num_free:
                victim = self._victim()
                draft.withdraw(victim)
                self._preempt(victim)
                if victim is sequence:
                    return False
            self.memory.grow(sequence)
        return True

    def _victim(self) -> Sequence:
        by_id = {sequence.request_id: sequence for sequence in self._running.values()}
        return by_id[self.policy.victim([sequence.view for sequence in by_id.values()])]

    def _preempt(self, victim: Sequence) -> None:
        del self._running[victim.seq_id]
        # A token in flight is sampled anew, so it is as if the last known one had not been computed yet.
        keep = min(victim.num_computed, len(victim.token_ids) - 1)
        known = victim.num_sent is not None
        if not known or not self.memory.swap_pool.num_free or not self.policy.swap(victim.view):
            keep = 0  # what the executor does not know yet may still wait to be copied
        self.swaps += self.memory.release(victim, keep=keep)
        if known:
            self._released.append(victim.seq_id)
        victim.num_sent = None
        victim.in_flight = 0
        victim.epoch += 1
        victim.preemptions += 1
        self.preemptions += 1
        if victim.paused:
            self._parked[victim.seq_id] = victim
        else:
            self._queue(victim)

    def _admit(self, draft: Draft, candidates: Iterator[Sequence]) -> None:
        for sequence in candidates:
            if not draft.budget or len(self._running) >= self.max_num_seqs:
                return
            if not self.memory.admit(sequence, self._reserve_for(sequence)):
                return
            if sequence.cached_tokens is None:
                sequence.cached_tokens = sequence.num_computed
                self.num_queued -= 1
                self.prompt_tokens += sequence.prompt_len
                self.cached_tokens += sequence.num_computed
            self._waiting.remove(sequence)
            self._running[sequence.seq_id] = sequence
            draft.add(sequence)

    def _reserve_for(self, sequence: Sequence) -> int:
        """Blocks that must stay free when a sequence joins the running ones.

        One that comes back leaves each of them a block: otherwise it would soon lose its own again, for nothing.
        """
        if not self._running:
            return 0
        return self._reserve + (len(self._running) if sequence.preemptions else 0)

    def _candidates(self) -> Iterator[Sequence]:
        """Waiting sequences in the policy's order; the caller removes each from the queue or stops."""
        if not self.policy.is_dynamic:
            while (sequence := self._waiting.peek()) is not None:
                yield sequence
            return
        if not len(self._waiting) or len(self._running) >= self.max_num_seqs:
            return
        by_id = {sequence.request_id: sequence for sequence in self._waiting}
        yield from map(by_id.__getitem__, self.policy.order([sequence.view for sequence in by_id.values()]))
