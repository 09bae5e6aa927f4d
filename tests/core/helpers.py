"""Builds engines on the fake executor."""

import time
from collections.abc import Callable
from typing import Any

from corelm.api import SamplingParams, SchedulingPolicy
from corelm.engine.async_engine import AsyncEngine
from corelm.engine.engine import Engine
from corelm.engine.intake import Intake
from corelm.scheduler.scheduler import Scheduler
from corelm.testing import FakeExecutor, FakeTokenizer, fake_continuation

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=8)


def greedy(**values: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 8, **values})


def make_engine(
    executor: FakeExecutor | None = None,
    policy: SchedulingPolicy | None = None,
    *,
    max_num_seqs: int = 64,
    max_num_batched_tokens: int = 64,
    tokenizer: FakeTokenizer | None = None,
    clock: Callable[[], float] = time.monotonic,
    prefix_cache: bool = True,
) -> Engine:
    executor = executor or FakeExecutor()
    info = executor.load(lambda fraction, text: None)
    scheduler = Scheduler(
        policy or SchedulingPolicy(),
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        clock=clock,
        prefix_cache=prefix_cache,
    )
    intake = Intake(
        tokenizer or FakeTokenizer(),
        max_model_len=info.max_model_len,
        kv_tokens=info.num_blocks * info.block_size,
        vocab_size=info.vocab_size,
    )
    return Engine(model_name="fake", executor=executor, info=info, scheduler=scheduler, intake=intake)


async def start_engine(
    executor: FakeExecutor | None = None, *, iteration_timeout_s: float = 30.0, **options: Any
) -> AsyncEngine:
    engine = AsyncEngine(
        lambda progress: make_engine(executor, **options), names=["fake"], iteration_timeout_s=iteration_timeout_s
    )
    await engine.start()
    return engine


def expected_text(prompt: str, count: int = 8, seed: int = 0) -> str:
    return bytes(fake_continuation(list(prompt.encode()), count, seed)).decode()
