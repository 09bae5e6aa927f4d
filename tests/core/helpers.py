"""Builds engines on the fake executor."""

import time
from collections.abc import Callable
from typing import Any

from corelm.api import GrammarCompiler, SamplingParams, SchedulingPolicy
from corelm.engine.async_engine import AsyncEngine
from corelm.engine.engine import Engine
from corelm.engine.grammars import Grammars
from corelm.engine.intake import Intake
from corelm.engine.observing import Observing
from corelm.engine.prompts import PromptReader
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.scheduler import Scheduler
from corelm.testing import FakeExecutor, FakeGrammarCompiler, FakeTokenizer, fake_continuation

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=8)


def greedy(**values: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 8, **values})


EVERYTHING = frozenset({"prefix_cache", "copy_blocks", "logprobs", "penalties", "token_masks", "grammar"})


def make_intake(
    tokenizer: FakeTokenizer | None = None,
    *,
    max_model_len: int = 10_000,
    kv_tokens: int = 10_000,
    capabilities: frozenset[str] = EVERYTHING,
    grammars: Grammars | None = None,
) -> Intake:
    tokenizer = tokenizer or FakeTokenizer()
    prompts = PromptReader(tokenizer, max_model_len=max_model_len, kv_tokens=kv_tokens, vocab_size=258)
    return Intake(tokenizer, prompts, capabilities=capabilities, grammars=grammars)


def make_grammars(
    compiler: GrammarCompiler | None = None, *, vocab_size: int = 258, timeout_s: float = 10.0, kept: int = 8
) -> Grammars:
    return Grammars(compiler or FakeGrammarCompiler(), vocab_size=vocab_size, timeout_s=timeout_s, kept=kept)


def make_engine(
    executor: FakeExecutor | None = None,
    policy: SchedulingPolicy | None = None,
    *,
    max_num_seqs: int = 64,
    max_num_batched_tokens: int = 64,
    tokenizer: FakeTokenizer | None = None,
    clock: Callable[[], float] = time.monotonic,
    strict_policy: bool = True,
    prefix_cache: bool = True,
    observing: Observing | None = None,
    grammars: Grammars | None = None,
) -> Engine:
    executor = executor or FakeExecutor()
    info = executor.load(lambda fraction, text: None)
    memory = KVMemory(
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        num_swap_blocks=info.num_swap_blocks,
        prefix_cache=prefix_cache,
    )
    scheduler = Scheduler(
        PolicyGuard(policy or SchedulingPolicy(), strict=strict_policy, clock=clock),
        memory,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        can_fork="copy_blocks" in info.capabilities,
    )
    grammars = grammars or make_grammars(vocab_size=info.vocab_size)
    intake = make_intake(
        tokenizer,
        max_model_len=info.max_model_len,
        kv_tokens=info.num_blocks * info.block_size,
        capabilities=info.capabilities,
        grammars=grammars,
    )
    return Engine(
        model_name="fake",
        executor=executor,
        info=info,
        scheduler=scheduler,
        intake=intake,
        grammars=grammars,
        observing=observing,
    )


async def start_engine(
    executor: FakeExecutor | None = None,
    *,
    iteration_timeout_s: float = 30.0,
    max_waiting: int = 1000,
    observing: Observing | None = None,
    **options: Any,
) -> AsyncEngine:
    observing = observing or Observing()
    engine = AsyncEngine(
        lambda progress: make_engine(executor, observing=observing, **options),
        names=["fake"],
        iteration_timeout_s=iteration_timeout_s,
        max_waiting=max_waiting,
        observing=observing,
    )
    await engine.start()
    return engine


def expected_text(prompt: str, count: int = 8, seed: int = 0) -> str:
    return bytes(fake_continuation(list(prompt.encode()), count, seed)).decode()
