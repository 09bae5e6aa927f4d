"""The step: schedule, compute, turn tokens into outputs. Synchronous; one thread at a time."""

import logging
import time
from collections.abc import Iterable

import msgspec

from corelm.contracts.executor import Executor, ExecutorInfo, StepPlan, StepResult
from corelm.engine.intake import Intake
from corelm.engine.request import Request
from corelm.errors import CorelmError, RequestFailedError
from corelm.outputs import RequestOutput
from corelm.scheduler.scheduler import Scheduler

logger = logging.getLogger("corelm.engine")

HEALTH_INTERVAL_S = 1.0

Emission = tuple[int, RequestOutput | CorelmError]
"""What a step has for one request, by its seq_id."""


class EngineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Counts between two steps."""

    running: int = 0
    waiting: int = 0
    total_blocks: int = 0
    free_blocks: int = 0
    preemptions: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0


class Engine:
    """Requests that were prepared by `intake` go in with `add`; every `step` gives outputs for some of them."""

    def __init__(
        self, *, model_name: str, executor: Executor, info: ExecutorInfo, scheduler: Scheduler, intake: Intake
    ) -> None:
        self.model_name = model_name
        self.info = info
        self.intake = intake
        self._executor = executor
        self._scheduler = scheduler
        self._requests: dict[int, Request] = {}
        self._steps = 0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._health_checked = time.monotonic()

    @property
    def has_work(self) -> bool:
        return bool(self._requests)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._scheduler.add(request.sequence)
        self._requests[request.seq_id] = request
        self._prompt_tokens += request.sequence.prompt_len

    def abort(self, seq_ids: Iterable[int]) -> None:
        """Forget requests; ids of finished and unknown ones are ignored."""
        for seq_id in seq_ids:
            if (request := self._requests.pop(seq_id, None)) is not None:
                self._scheduler.remove(request.sequence)

    def step(self) -> list[Emission]:
        """Run one step. An exception means that the engine can no longer be used."""
        self.check_health()
        plan = self._scheduler.schedule()
        if plan is None:
            return []
        result = self._executor.collect(self._executor.submit(plan))
        self._steps += 1
        return self._process(plan, result)

    def check_health(self) -> None:
        """Raise what the executor says is wrong. Asks it at most once a second."""
        now = time.monotonic()
        if now - self._health_checked >= HEALTH_INTERVAL_S:
            self._health_checked = now
            self._executor.check_health()

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot(
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            total_blocks=self._scheduler.pool.num_blocks,
            free_blocks=self._scheduler.pool.num_free,
            preemptions=self._scheduler.preemptions,
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
        )

    def check_integrity(self) -> None:
        """Raise `AssertionError` if the bookkeeping contradicts itself."""
        self._scheduler.check_integrity()
        if self._scheduler.num_running + self._scheduler.num_waiting != len(self._requests):
            raise AssertionError("a request is neither running nor waiting")

    def shutdown(self) -> None:
        self._executor.shutdown()

    def _process(self, plan: StepPlan, result: StepResult) -> list[Emission]:
        if result.step_id != plan.step_id or len(result.token_ids) != len(plan.slices):
            raise RuntimeError(f"the executor answered step {plan.step_id} with another step's result")
        for item, tokens in zip(plan.slices, result.token_ids, strict=True):
            if bool(tokens) != item.sample and item.seq_id not in result.errors:
                wanted = "some tokens" if item.sample else "none"
                raise RuntimeError(f"the executor gave sequence {item.seq_id} {len(tokens)} tokens, the plan {wanted}")
        emissions: list[Emission] = []
        for sequence, tokens in self._scheduler.update(plan, result):
            if sequence.seq_id not in result.errors:
                emissions.append(self._advance(self._requests[sequence.seq_id], tokens))
        for seq_id, reason in result.errors.items():
            self.abort([seq_id])
            emissions.append((seq_id, RequestFailedError(reason)))
        return emissions

    def _advance(self, request: Request, tokens: list[int]) -> Emission:
        self._generation_tokens += len(tokens)
        try:
            output = request.advance(tokens)
        except Exception as error:
            logger.exception("request %s failed while its output was decoded", request.sequence.request_id)
            self.abort([request.seq_id])
            return request.seq_id, RequestFailedError(f"the output could not be decoded: {error}")
        if output.finish_reason is not None:
            self.abort([request.seq_id])
        return request.seq_id, output
