"""A real engine on a fake executor, for a frontend to stand before."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from corelm.contracts.executor import Progress, StepPlan, StepResult
from corelm.contracts.frontend import Frontend
from corelm.contracts.scheduling import SchedulingPolicy
from corelm.engine.async_engine import AsyncEngine
from corelm.engine.engine import Engine
from corelm.engine.intake import Intake
from corelm.engine.observing import Observing
from corelm.engine.prompts import PromptReader
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.scheduler import Scheduler
from corelm.testing.executor import FakeExecutor
from corelm.testing.tokenizer import FakeTokenizer

PATIENCE_S = 10.0
"""How long anything that should happen at once may take on a busy machine."""
MAX_MODEL_LEN = 512
T = TypeVar("T")


class StageExecutor(FakeExecutor):
    """Remembers what it generated, and can be held or made to fail in a step."""

    def __init__(self, hold_at_step: int | None) -> None:
        super().__init__(num_blocks=512, max_model_len=MAX_MODEL_LEN)
        self.held = threading.Event()
        """Set once it is held; never if it is not to be held."""
        self.released = threading.Event()
        self.fails = False
        """Raise in place of the step at which it was held."""
        self.texts: dict[int, tuple[str, str]] = {}
        """Prompt and output of every sequence."""
        self._hold_at_step = hold_at_step

    def execute(self, plan: StepPlan) -> StepResult:
        if plan.step_id == self._hold_at_step:
            self.held.set()
            self.released.wait(2 * PATIENCE_S)
            if self.fails:
                raise ZeroDivisionError("the conformance suite lets the engine fail")
        result = super().execute(plan)
        for start in plan.started:
            self.texts[start.seq_id] = (FakeTokenizer().decode(start.token_ids), "")
        for item, tokens in zip(plan.slices, result.token_ids, strict=True):
            prompt, output = self.texts[item.seq_id]
            self.texts[item.seq_id] = (prompt, output + bytes(tokens).decode())
        return result


class Stage:
    """Runs a frontend as corelm does: it serves before the model is loaded, and until it is told to stop."""

    def __init__(self, frontend: Frontend, *, hold_at_step: int | None = None) -> None:
        self.frontend = frontend
        self.executor = StageExecutor(hold_at_step)
        self._observing = Observing()
        self.engine = AsyncEngine(self._load, iteration_timeout_s=6 * PATIENCE_S, observing=self._observing)
        self._may_load = threading.Event()
        self._stop = asyncio.Event()
        self._serving = asyncio.create_task(frontend.serve(self.engine, self._stop))
        self._loading = asyncio.create_task(self.engine.start())

    def _load(self, progress: Progress) -> Engine:
        self._may_load.wait()
        return _make_engine(self.executor, self._observing, progress)

    async def listens(self, listening: Awaitable[None]) -> None:
        """Wait for `listening`, in which `serve` must not end."""
        await self.meanwhile(listening, "the frontend does not listen: serve() must open its port at once")
        self.check_serving()

    async def load(self) -> None:
        """Let the engine become ready."""
        self._may_load.set()
        await self._loading

    async def meanwhile(self, awaited: Awaitable[T], otherwise: str) -> T:
        """The result of `awaited`, unless `serve` raises or it takes too long: then `otherwise` is what to say."""
        task = asyncio.ensure_future(awaited)
        await asyncio.wait([task, self._serving], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done() and not task.done() and self._serving.exception() is None:
            await asyncio.wait([task], timeout=PATIENCE_S)
        if task.done():
            return task.result()
        task.cancel()
        if self._serving.done():
            self._serving.result()
        raise AssertionError(f"{otherwise} (waited {PATIENCE_S:g} s)")

    def check_serving(self) -> None:
        """Raise if `serve` has ended."""
        if self._serving.done():
            self._serving.result()
            raise AssertionError("serve() returned before stop was set")

    def tell_to_stop(self) -> None:
        """As on SIGTERM: the engine takes nothing new, and the frontend is told."""
        self.engine.drain()
        self._stop.set()

    async def served(self) -> None:
        """Wait for `serve` to return."""
        done, _ = await asyncio.wait([self._serving], timeout=PATIENCE_S)
        assert done, f"serve() did not return within {PATIENCE_S:g} s after stop was set and every answer had ended"
        self._serving.result()

    async def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for `condition`; `otherwise` is what to say if it does not come."""
        await self.meanwhile(_until(condition), otherwise)

    async def close(self) -> None:
        """End everything, whatever state it is in."""
        self._may_load.set()
        self.executor.released.set()
        self._serving.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await self._serving
        await asyncio.wait([self._loading])
        await self.engine.stop()


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.002)


def _make_engine(executor: FakeExecutor, observing: Observing, progress: Progress) -> Engine:
    info = executor.load(progress)
    memory = KVMemory(num_blocks=info.num_blocks, block_size=info.block_size, num_swap_blocks=0, prefix_cache=True)
    guard = PolicyGuard(SchedulingPolicy(), clock=time.monotonic)
    scheduler = Scheduler(guard, memory, max_num_seqs=16, max_num_batched_tokens=64, can_fork=True)
    tokenizer = FakeTokenizer()
    prompts = PromptReader(
        tokenizer,
        max_model_len=info.max_model_len,
        kv_tokens=info.num_blocks * info.block_size,
        vocab_size=info.vocab_size,
    )
    intake = Intake(tokenizer, prompts, capabilities=info.capabilities)
    return Engine(
        model_name="fake", executor=executor, info=info, scheduler=scheduler, intake=intake, observing=observing
    )
