"""Checks of loading, limits, health and shutting down."""

from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from unittest import SkipTest

from corelm.contracts.model import ResolvedModel
from corelm.errors import ModelLoadError, describe
from corelm.testing.conformance.executor_suite import ExecutorSuite

CAPABILITIES = (
    "prefix_cache",
    "copy_blocks",
    "logprobs",
    "penalties",
    "token_masks",
    "logits_processors",
    "embeddings",
    "grammar",
)


class LoadingChecks(ExecutorSuite):
    """`load`, `check_health`, `shutdown` and `ExecutorInfo`."""

    def test_load_reports_what_it_can_do(self) -> None:
        with self.bench() as bench:
            info = bench.info
            for name in ("num_blocks", "block_size", "vocab_size", "max_model_len", "pipeline_depth"):
                assert getattr(info, name) >= 1, f"ExecutorInfo.{name} is {getattr(info, name)}: it must be at least 1"
            for name in info.capabilities:
                near = get_close_matches(name, CAPABILITIES, n=1)
                assert name in CAPABILITIES or not near, (
                    f"ExecutorInfo.capabilities has {name!r}: did you mean {near[0]!r}?"
                )
            assert ("embeddings" in info.capabilities) == (info.embedding_size > 0), (
                f"ExecutorInfo.embedding_size is {info.embedding_size}: it goes together with the capability embeddings"
            )
            assert self.dtype in (info.dtype, "auto"), (
                f"the user asked for {self.dtype}: load() must use it or raise ModelLoadError, not take {info.dtype}"
            )

    def test_limits_of_the_user_are_kept(self) -> None:
        with self.bench(max_model_len=self.max_model_len // 2, swap_tokens=0) as bench:
            info = bench.info
            assert info.max_model_len <= self.max_model_len // 2, (
                f"ExecutorInfo.max_model_len is {info.max_model_len}, but the user set {self.max_model_len // 2}"
            )
            tokens = info.num_blocks * info.block_size
            assert tokens < self.kv_cache_tokens + info.block_size, (
                f"context.kv_cache_tokens was {self.kv_cache_tokens}: the KV cache may not hold more, but num_blocks * "
                f"block_size is {tokens}"
            )
            assert info.num_swap_blocks == 0, (
                f"context.swap_tokens was 0: ExecutorInfo.num_swap_blocks must be 0, not {info.num_swap_blocks}"
            )

    def test_load_reports_progress(self) -> None:
        seen: list[float] = []
        executor = self.make_executor(self.context())
        try:
            executor.load(lambda fraction, what: seen.append(fraction))
        finally:
            executor.shutdown()
        good = seen == sorted(seen) and all(0 <= fraction <= 1 for fraction in seen)
        assert good, f"progress(fraction, text) must count up from 0 to 1, not {seen}"

    def test_a_missing_model_is_refused(self) -> None:
        missing = ResolvedModel(name="missing", path=self.model.path / "no-such-model", format=self.model.format)
        executor = self.make_executor(self.context(model=missing))
        try:
            executor.load(lambda fraction, what: None)
        except ModelLoadError:
            return
        except Exception as error:
            raise AssertionError(
                f"load() raised {describe(error)} for a model that is not there: raise ModelLoadError with one "
                "line that says what to do"
            ) from error
        finally:
            executor.shutdown()
        raise SkipTest("loads without the files of context.model")

    def test_shutdown_after_a_failed_load(self) -> None:
        def stop(fraction: float, what: str) -> None:
            raise RuntimeError("loading was stopped")

        executor = self.make_executor(self.context())
        with suppress(Exception):
            executor.load(stop)
        _shut_down(executor.shutdown, "after load() failed in the middle")
        _shut_down(executor.shutdown, "a second time")

    def test_shutdown_twice(self) -> None:
        executor = self.make_executor(self.context())
        executor.load(lambda fraction, what: None)
        _shut_down(executor.shutdown, "after load()")
        _shut_down(executor.shutdown, "a second time")

    def test_health(self) -> None:
        with self.bench() as bench:
            bench.executor.check_health()
            bench.alone(bench.prompt(5), 2)
            bench.executor.check_health()

    def test_health_after_a_failure(self) -> None:
        with self.bench() as bench:
            self.damage(bench.executor)
            assert _raises(bench.executor.check_health), (
                "check_health() must raise once the executor can run no more steps, which damage() saw to"
            )


def _raises(call: Callable[[], None]) -> bool:
    with suppress(Exception):
        call()
        return False
    return True


def _shut_down(shutdown: Callable[[], None], when: str) -> None:
    try:
        shutdown()
    except Exception as error:
        raise AssertionError(f"shutdown() raised {describe(error)} {when}: it must free what there is") from error
