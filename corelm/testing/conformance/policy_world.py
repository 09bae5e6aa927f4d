"""The real scheduler with a policy to judge, on the fake executor, under a clock that only steps move."""

import random
from collections.abc import Iterator
from typing import Any

from corelm.contracts.frontend import RequestOptions
from corelm.contracts.scheduling import SchedulingPolicy
from corelm.errors import InvalidRequestError, PolicyError
from corelm.sampling import SamplingParams
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.scheduler import Scheduler
from corelm.scheduler.sequence import Sequence
from corelm.testing.conformance.policy_referee import Referee, StrictView
from corelm.testing.executor import FakeExecutor

BLOCK_SIZE = 4
SWAP_BLOCKS = 5
"""Enough for some of the preempted, so that others are computed anew."""
STEP_S = 0.1
"""Seconds that a step takes."""
NAME_ALL = "order() must name every waiting request sooner or later, and victim() must not name one for ever"
GREEDY = SamplingParams(temperature=0.0, seed=0)


class World:
    """Requests arrive, run, fork, are preempted (both ways), aborted, and end. The same calls make the same history."""

    def __init__(self, policy: SchedulingPolicy, *, num_blocks: int = 14, slots: int = 4) -> None:
        self.referee = Referee(policy)
        self.now = 100.0
        self.steps = 0
        self.living: dict[str, Sequence] = {}
        self.arrived_at: dict[str, int] = {}
        """The step in which each living request arrived."""
        self._numbers = 0
        self._forks: dict[str, int] = {}
        self._executor = FakeExecutor(num_blocks=num_blocks, block_size=BLOCK_SIZE, num_swap_blocks=SWAP_BLOCKS)
        self.scheduler = Scheduler(
            PolicyGuard(self.referee, name="the policy", strict=True, clock=lambda: self.now),
            KVMemory(num_blocks=num_blocks, block_size=BLOCK_SIZE, num_swap_blocks=SWAP_BLOCKS, prefix_cache=True),
            max_num_seqs=slots,
            max_num_batched_tokens=32,
            can_fork=True,
        )

    def arrive(self, prompt_tokens: int, output_tokens: int, *, forks: int = 0, **options: Any) -> str:
        """A new request, unless the policy refuses it; its id."""
        self._numbers += 1
        name = f"request-{self._numbers}"
        draw = random.Random(self._numbers)
        tokens = [draw.randrange(256) for _ in range(prompt_tokens)]
        sequence = self._sequence(name, tokens, output_tokens, self.now, RequestOptions(**options))
        try:
            self.scheduler.add(sequence)
        except InvalidRequestError:
            return name
        self._enter(sequence, forks)
        return name

    def abort(self, name: str) -> None:
        """End a request wherever it is; unknown names are ignored."""
        if (sequence := self.living.pop(name, None)) is not None:
            del self.arrived_at[name]
            self.scheduler.remove(sequence)

    def step(self) -> dict[str, int]:
        """One step of the engine; for each request that ended in it, how many steps it was there."""
        self.steps += 1
        self.now += STEP_S
        ended = {}
        try:
            for sequence in self._run():
                name = sequence.request_id
                for _ in range(self._forks.pop(name, 0)):
                    self._fork(sequence)
                if sequence.num_output >= sequence.max_tokens:
                    ended[name] = self.steps - self.arrived_at[name]
                    self.abort(name)
        except PolicyError as error:
            raise AssertionError(str(error.__cause__ or f"{error} while requests waited: {NAME_ALL}")) from error
        self.scheduler.check_integrity()
        return ended

    def drain(self) -> None:
        """Run until nobody is left. Fails if that takes longer than any order of the requests could."""
        most = 20 + 2 * sum(len(one.token_ids) + one.max_tokens + 20 for one in self.living.values())
        for _ in range(most):
            if not self.living:
                return
            self.step()
        left = sorted(self.living)
        raise AssertionError(
            f"{len(left)} requests never ran to their end although nothing else came, among them {left[0]}: {NAME_ALL}"
        )

    def _run(self) -> Iterator[Sequence]:
        plan = self.scheduler.schedule()
        if plan is not None:
            for sequence, _ in self.scheduler.update(plan, self._executor.execute(plan)):
                yield sequence

    def _fork(self, parent: Sequence) -> None:
        name = f"{parent.request_id}#{self._numbers + 1}"
        tokens = parent.token_ids[: parent.prompt_len]
        child = self._sequence(name, tokens, parent.max_tokens, parent.arrival, parent.options)
        self.scheduler.fork(parent, child)
        self._enter(child, 0)

    def _sequence(
        self, name: str, tokens: list[int], max_tokens: int, arrival: float, options: RequestOptions
    ) -> Sequence:
        self._numbers += 1
        sequence = Sequence(
            seq_id=self._numbers,
            request_id=name,
            token_ids=list(tokens),
            max_tokens=max_tokens,
            sampling=GREEDY,
            arrival=arrival,
            options=options,
        )
        setattr(sequence, "view", StrictView(sequence.view))  # noqa: B010 - another type, with the same face
        return sequence

    def _enter(self, sequence: Sequence, forks: int) -> None:
        self.living[sequence.request_id] = sequence
        self.arrived_at[sequence.request_id] = self.steps
        self._forks[sequence.request_id] = forks


def live_through(world: World, *, steps: int, seed: int = 0) -> None:
    """A busy time of every kind of request, with forks and aborts, and a quiet end."""
    draw = random.Random(seed)
    for _ in range(steps):
        if len(world.living) < 16:
            world.arrive(
                draw.randint(1, 24),
                draw.randint(1, 20),
                forks=draw.choice((0, 0, 1, 2)),
                priority=draw.choice((-1, 0, 0, 5)),
                tenant=draw.choice((None, "a", "b", "c")),
                session=draw.choice((None, "s", "t")),
                deadline_s=draw.choice((None, 0.0, 1.0, 30.0)),
            )
        if draw.random() < 0.1 and world.living:
            world.abort(draw.choice(sorted(world.living)))
        world.step()
    world.drain()
