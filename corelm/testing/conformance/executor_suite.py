"""What the parts of the executor suite share: the author's hooks, and a bench to run on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import SkipTest

from corelm.contracts.executor import Executor, ExecutorContext, ExecutorInfo
from corelm.contracts.model import ResolvedModel
from corelm.testing.conformance.executor_bench import Bench


class ExecutorSuite:
    """The hooks and limits of `corelm.testing.ExecutorConformance`."""

    model: ResolvedModel = ResolvedModel(name="conformance", path=Path(), format="huggingface")
    """`ExecutorContext.model`. Set it to a small model, unless your executor needs none."""
    settings: Any = None
    """`ExecutorContext.settings`: an instance of your settings model."""
    dtype: str = "float32"
    block_size: int = 16
    max_model_len: int = 128
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    kv_cache_tokens: int = 1024
    exact: bool = True
    """In float32 a sequence gets the same tokens whatever shares its batches, however its prompt is cut, and when it is
    computed anew; corelm's users count on it. Set it to False only where the hardware does not let you promise it: then
    most outputs must begin alike."""
    samples: bool = True
    """Set it to False for a toy that always takes the same token: nothing is then said about seeds and temperatures."""

    def make_executor(self, context: ExecutorContext) -> Executor:
        """Your executor for this context, not loaded yet. Called once or more in each check."""
        raise NotImplementedError("define make_executor(self, context) in your suite: return YourExecutor(context)")

    def damage(self, executor: Executor) -> None:
        """Override to break a loaded executor for good, as a crashed worker or a lost device would."""
        raise SkipTest("damage(executor) is not overridden, so nobody knows what check_health() should notice")

    def context(self, **changes: Any) -> ExecutorContext:
        """What `make_executor` is given."""
        values: dict[str, Any] = {
            "model": self.model,
            "settings": self.settings,
            "dtype": self.dtype,
            "block_size": self.block_size,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "kv_cache_tokens": self.kv_cache_tokens,
            "swap_tokens": self.kv_cache_tokens // 4,
        }
        return ExecutorContext(**values | changes)

    @contextmanager
    def bench(self, *needed: str, **changes: Any) -> Iterator[Bench]:
        """A loaded executor. Skips the check if it does not declare the `needed` capabilities."""
        context = self.context(**changes)
        executor = self.make_executor(context)
        try:
            info = executor.load(lambda fraction, what: None)
            assert isinstance(info, ExecutorInfo), f"load() must return an ExecutorInfo, not {type(info).__name__}"
            missing = sorted(set(needed) - info.capabilities)
            if missing:
                raise SkipTest(f"not declared in ExecutorInfo.capabilities: {', '.join(missing)}")
            yield Bench(executor, info, max_num_batched_tokens=context.max_num_batched_tokens)
        finally:
            executor.shutdown()

    def same(self, expected: Sequence[Sequence[int]], found: Sequence[Sequence[int]], why: str) -> None:
        """Fail with `why` unless the outputs are the same, or, if the executor is not exact, most begin alike."""
        if self.exact:
            wrong = [index for index, output in enumerate(expected) if list(found[index]) != list(output)]
            assert not wrong, f"{why} (expected tokens {list(expected[wrong[0]])}, got {list(found[wrong[0]])})"
        else:
            alike = sum(one[:1] == other[:1] for one, other in zip(expected, found, strict=True))
            assert 2 * alike > len(expected), f"{why} ({alike} of {len(expected)} outputs begin alike)"
