"""The step: schedule, compute, turn tokens into outputs. Synchronous; one thread at a time."""

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from corelm.contracts.executor import Executor, ExecutorInfo, StepPlan, StepResult
from corelm.contracts.observer import Outcome
from corelm.engine.choice import Choice
from corelm.engine.embedding import enter_embeddings
from corelm.engine.grammars import Grammars, Masks, blamed
from corelm.engine.intake import Intake
from corelm.engine.journal import Journal
from corelm.engine.observing import Observing
from corelm.engine.request import Request
from corelm.errors import CorelmError, RequestFailedError
from corelm.outputs import RequestOutput, TokenLogprobs
from corelm.scheduler.guard import StrictPolicyError
from corelm.scheduler.scheduler import Scheduler
from corelm.scheduler.sequence import Sequence

logger = logging.getLogger("corelm.engine")

HEALTH_INTERVAL_S = 1.0

Emission = tuple[int, RequestOutput | CorelmError]
"""What a step has for one request, by its number."""


class EngineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Counts between two steps."""

    running: int = 0
    waiting: int = 0
    queued: int = 0
    """Requests of which no sequence has run yet."""
    total_blocks: int = 0
    free_blocks: int = 0
    preemptions: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0


class Engine:
    """Requests that were prepared by `intake` go in with `add`; every `step` gives outputs for some of them.

    Up to `ExecutorInfo.pipeline_depth` steps are submitted at a time: while the executor runs one, the results of the
    one before are handled and the next one is planned.
    """

    def __init__(
        self,
        *,
        model_name: str,
        executor: Executor,
        info: ExecutorInfo,
        scheduler: Scheduler,
        intake: Intake,
        grammars: Grammars | None = None,
        observing: Observing | None = None,
    ) -> None:
        self.model_name = model_name
        self.info = info
        self.intake = intake
        self.journal = Journal(observing or Observing(), time.monotonic)
        self._executor = executor
        self._scheduler = scheduler
        self._grammars = grammars
        self._masks = Masks(grammars)
        self._requests: dict[int, Request] = {}
        self._owner: dict[int, Request] = {}
        """The request of each sequence, by seq_id."""
        self._submitted: deque[tuple[StepPlan, Any]] = deque()
        self._steps = 0
        self._generation_tokens = 0
        self._health_checked = time.monotonic()

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._submitted)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._scheduler.add(request.first)
        self._requests[request.number] = request
        self._owner[request.first.seq_id] = request
        self.journal.queued(request)

    def abort(self, numbers: Iterable[int], reason: Outcome = "abort") -> None:
        """Forget requests; numbers of finished and unknown ones are ignored."""
        for number in numbers:
            if (request := self._requests.get(number)) is not None:
                for sequence in list(request.sequences.values()):
                    self.retire(sequence)
                self.journal.ended(request, reason)
        self.journal.flush()

    def step(self) -> list[Emission]:
        """Plan a step and take the results of another. An exception means that the engine can no longer be used."""
        self.check_health()
        plan = self._scheduler.schedule()
        if plan is not None:
            self.journal.planned(plan, self._owner)
            self._submitted.append((plan, self._executor.submit(plan)))
            if len(self._submitted) < self.info.pipeline_depth:
                return []
        if not self._submitted:
            return []
        plan, handle = self._submitted.popleft()
        result = self._executor.collect(handle)
        self._steps += 1
        self.journal.collected(plan)
        return self._process(plan, result)

    def check_health(self) -> None:
        """Raise what the executor says is wrong. Asks it at most once a second."""
        now = time.monotonic()
        if now - self._health_checked >= HEALTH_INTERVAL_S:
            self._health_checked = now
            self._executor.check_health()

    def snapshot(self) -> EngineSnapshot:
        pool = self._scheduler.memory.pool
        return EngineSnapshot(
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            queued=self._scheduler.num_queued,
            total_blocks=pool.num_blocks,
            free_blocks=pool.num_free,
            preemptions=self._scheduler.preemptions,
            steps=self._steps,
            prompt_tokens=self._scheduler.prompt_tokens,
            cached_tokens=self._scheduler.cached_tokens,
            generation_tokens=self._generation_tokens,
        )

    def check_integrity(self) -> None:
        """Raise `AssertionError` if the bookkeeping contradicts itself."""
        self._scheduler.check_integrity()
        if self._scheduler.num_running + self._scheduler.num_waiting != len(self._owner):
            raise AssertionError("a sequence is neither running nor waiting")
        if {id(request) for request in self._owner.values()} != set(map(id, self._requests.values())):
            raise AssertionError("a request lives without sequences, or a sequence without its request")

    def shutdown(self) -> None:
        if self._grammars is not None:
            self._grammars.close()
        self._submitted.clear()  # handles may hold what the executor is to free
        self._executor.shutdown()

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """See `corelm.engine.request.Sequences`."""
        request = self._owner[child.seq_id] = self._owner[parent.seq_id]
        request.sequences[child.seq_id] = child
        self._scheduler.fork(parent, child)

    def retire(self, sequence: Sequence) -> None:
        """See `corelm.engine.request.Sequences`."""
        request = self._owner.pop(sequence.seq_id)
        del request.sequences[sequence.seq_id]
        if not request.sequences:
            del self._requests[request.number]
        self._scheduler.remove(sequence)

    def resume(self, sequence: Sequence) -> None:
        """See `corelm.engine.request.Sequences`."""
        self._scheduler.resume(sequence)

    def follow(self, sequence: Sequence, choice: Choice) -> None:
        """See `corelm.engine.request.Sequences`."""
        if choice.forced:
            self._scheduler.force(sequence, choice.forced)
            self._count(self._owner[sequence.seq_id], choice.forced)
        if not choice.finished and choice.matcher is not None:
            self._masks.want(sequence, choice.matcher)

    def _process(self, plan: StepPlan, result: StepResult) -> list[Emission]:
        _check(plan, result)
        if result.prompt_logprobs:
            self._enter_prompt_logprobs(plan, result)
        if result.embeddings:
            enter_embeddings(result.embeddings, self._owner, self.info.embedding_size)
        emissions: list[Emission] = []
        for sequence, tokens in self._scheduler.update(plan, result):
            if sequence.seq_id not in result.errors:
                self._advance(sequence, tokens, result, emissions)
        for seq_id, reason in result.errors.items():
            if (request := self._owner.get(seq_id)) is not None:
                self._scheduler.distrust(request.sequences[seq_id])
                emissions.append(self._fail(request, RequestFailedError(reason)))
        for sequence, error in self._masks.compute(self._owner):
            if (request := self._owner.get(sequence.seq_id)) is not None:
                emissions.append(self._fail(request, error))
        self.journal.flush()
        return emissions

    def _advance(self, sequence: Sequence, tokens: list[int], result: StepResult, emissions: list[Emission]) -> None:
        request = self._owner[sequence.seq_id]
        logprobs = None
        self._count(request, tokens)
        try:
            if sequence.sampling.logprobs is not None:
                logprobs = _checked(result.logprobs.get(sequence.seq_id, []), len(tokens))
            outputs = request.advance(self, sequence, tokens, logprobs)
        except StrictPolicyError:
            raise
        except RequestFailedError as error:
            emissions.append(self._fail(request, blamed(error)))
            return
        except (Exception, SystemExit) as error:
            logger.exception("request %s failed while its output was made", request.request_id)
            emissions.append(self._fail(request, RequestFailedError(f"the output could not be made: {error}")))
            return
        if not request.sequences:
            self.journal.ended(request, outputs[-1].finish_reason or "stop")
        emissions += [(request.number, output) for output in outputs]

    def _count(self, request: Request, tokens: list[int]) -> None:
        self._generation_tokens += len(tokens)
        if self.journal.active:
            self.journal.advanced(request, tokens)

    def _fail(self, request: Request, error: CorelmError) -> Emission:
        self.abort([request.number], "error")
        return request.number, error

    def _enter_prompt_logprobs(self, plan: StepPlan, result: StepResult) -> None:
        for item in plan.slices:
            entries = result.prompt_logprobs.get(item.seq_id)
            if entries and (request := self._owner.get(item.seq_id)) is not None:
                request.enter_prompt_logprobs(item.start + 1, entries)


def _checked(logprobs: list[TokenLogprobs], count: int) -> list[TokenLogprobs]:
    if len(logprobs) != count:
        raise RuntimeError(f"the executor gave {len(logprobs)} log-probabilities for {count} tokens")
    return logprobs


def _check(plan: StepPlan, result: StepResult) -> None:
    """Raise if a result cannot be the plan's."""
    if result.step_id != plan.step_id or len(result.token_ids) != len(plan.slices):
        raise RuntimeError(f"the executor answered step {plan.step_id} with another step's result")
    for item, tokens in zip(plan.slices, result.token_ids, strict=True):
        if bool(tokens) != item.sample and item.seq_id not in result.errors:
            wanted = "some tokens" if item.sample else "none"
            raise RuntimeError(f"the executor gave sequence {item.seq_id} {len(tokens)} tokens, the plan {wanted}")
