"""Good executors pass the suite; each broken one fails the check that is about its fault, with what to do about it."""

import importlib.util
import re
from pathlib import Path

import msgspec
import pytest
from conformance import broken_executors as broken

from corelm.testing import ExecutorConformance, FakeExecutor
from corelm.testing.conformance.executor_loading import CAPABILITIES
from corelm.testing.conformance.running import run_suite


def fake(context, executor=FakeExecutor, **options):
    return executor(
        **{
            "num_blocks": context.kv_cache_tokens // context.block_size,
            "block_size": context.block_size,
            "max_model_len": context.max_model_len,
            "max_num_seqs": context.max_num_seqs,
            "max_num_batched_tokens": context.max_num_batched_tokens,
            "num_swap_blocks": context.swap_tokens // context.block_size,
        }
        | options
    )


class TestFakeExecutor(ExecutorConformance):
    def make_executor(self, context):
        return fake(context)

    def damage(self, executor):
        executor.unhealthy = RuntimeError("lost")


class TestSmallBlocks(TestFakeExecutor):
    block_size = 1


class TestOneBlockASequence(TestFakeExecutor):
    block_size = 128


class TestInstalledFake(ExecutorConformance):
    """The plugin that tests of a whole server use."""

    def make_executor(self, context):
        path = Path(__file__).parents[2] / "dists" / "corelm_fake" / "corelm_fake.py"
        spec = importlib.util.spec_from_file_location("corelm_fake", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = []
        module.corelm_register_executors(lambda name, factory, settings: made.append(factory))
        return made[0](msgspec.structs.replace(context, settings=module.FakeSettings()))


class TestPipelined(TestFakeExecutor):
    def make_executor(self, context):
        return fake(context, pipeline_depth=2)


DECLARES_TOO_MUCH = {"capabilities": frozenset(CAPABILITIES)}
BROKEN = [
    (broken.AnswersInTheOrderOfArrival, {}, "results follow the order of the slices", "order of plan.slices"),
    (broken.LeavesOutWhatIsNotSampled, {}, "chunked prompts", "one list per slice, empty where sample is false"),
    (broken.CountsStepsItself, {}, "prefill and decode agree", "StepResult.step_id must be the plan's"),
    (broken.GivesStrings, {}, "prefill and decode agree", "must hold Python integers"),
    (broken.AttendsToItsChunkOnly, {}, "chunked prompts", "later chunks attend to all positions before them"),
    (broken.OpensBlocksOneTooLate, {}, "prefill and decode agree", "position p lies in entry p // block_size"),
    (broken.ReadsTheRestOfTheBlock, {}, "used blocks are as good as new", "never read a position that the sequence"),
    (broken.TrustsEveryRelease, {}, "unknown releases are ignored", "KeyError"),
    (broken.ForgetsTooMuch, {}, "aborted sequences", "the others must go on as if it had never been"),
    (broken.SharesOneGenerator, {}, "seeds", "no generator that sequences share"),
    (broken.IgnoresSeeds, {}, "seeds", "sampling.seed and sampling.temperature must count"),
    (
        broken.DrawsByStepsSinceTheStart,
        {},
        "released sequences come back",
        "draw for output token i with its seed and i",
    ),
    (broken.IgnoresCopies, {}, "copied blocks let sequences fork", "StepPlan.copies are done before anything"),
    (broken.CopiesAllAtOnce, {}, "copies are done in their order", "one after the other"),
    (broken.SwapsTooLate, {}, "swapping", "before anything of the step is computed"),
    (broken.ComputesSharedBlocksAnew, {}, "prefix cache", "they are only read"),
    (broken.RanksFromZero, {}, "logprobs", "rank of the most probable token is 1"),
    (broken.ReportsLogits, {}, "logprobs", "natural logarithms of probabilities"),
    (broken.AppliesTheTemperatureFirst, {}, "logprobs are the models own", "before temperature, penalties and masks"),
    (broken.ForgetsWhatChunksSay, {}, "prompt logprobs", "over all chunks"),
    (broken.KnowsTokensTooLate, {"pipeline_depth": 2}, "steps in flight", "IndexError"),
    (broken.ShutsDownOnce, {}, "shutdown twice", "shutdown() raised AttributeError"),
    (broken.FreesWhatItHasNotLoaded, {}, "shutdown after a failed load", "it must free what there is"),
    (broken.IsAlwaysHealthy, {}, "health after a failure", "check_health() must raise"),
    (broken.HasNoErrorOfItsOwn, {}, "a missing model is refused", "raise ModelLoadError"),
    (broken.TakesAllMemory, {}, "limits of the user are kept", "context.kv_cache_tokens was 1024"),
    (FakeExecutor, {"max_model_len": 4096}, "limits of the user are kept", "but the user set 64"),
    (broken.ReturnsItsInfoAsADictionary, {}, "load reports what it can do", "must return an ExecutorInfo, not dict"),
    (broken.ReportsNothing, {}, "load reports what it can do", "ExecutorInfo.block_size is 0"),
    (FakeExecutor, {"capabilities": frozenset({"prefix-cache"})}, "load reports what it can do", "'prefix_cache'?"),
    (
        FakeExecutor,
        {"capabilities": frozenset()},
        "what is declared fits together",
        "needs the capability prefix_cache",
    ),
    (FakeExecutor, DECLARES_TOO_MUCH, "penalties", "declared: penalties"),
    (FakeExecutor, DECLARES_TOO_MUCH, "repetition penalty", "10.0 changed nothing"),
    (FakeExecutor, DECLARES_TOO_MUCH, "allowed tokens", "must be all that is sampled"),
    (FakeExecutor, DECLARES_TOO_MUCH, "logit bias", "must force token"),
    (FakeExecutor, DECLARES_TOO_MUCH, "bad words", "must not be sampled"),
    (FakeExecutor, DECLARES_TOO_MUCH, "min tokens", "may not be among the first 3 output tokens"),
    (FakeExecutor, DECLARES_TOO_MUCH, "logits processors", "0 calls in 1 steps"),
    (
        FakeExecutor,
        DECLARES_TOO_MUCH,
        "logits processors keep their order",
        "in the order of context.logits_processors",
    ),
    (FakeExecutor, DECLARES_TOO_MUCH, "a failing logits processor", "one row at a time"),
    (broken.IgnoresMasks, {}, "masks", "says what may be sampled"),
    (broken.ReadsBitsFromTheOtherEnd, {}, "masks", "bit i % 8 of byte i // 8"),
    (broken.KeepsMasks, {}, "masks hold for one token", "as if there had never been one"),
    (broken.RaisesWhereNothingIsAllowed, {}, "a mask that leaves nothing", "no token is allowed"),
    (broken.ForgetsForcedTokens, {}, "forced tokens", "in a step that is in order"),
    (broken.DrawsAsIfForcedTokensWereNone, {}, "forced tokens", "count them in the index of the next draw"),
    (broken.EmbedsItsChunkOnly, {}, "embeddings", "nor on how it is cut"),
    (broken.EmbedsEveryChunk, {}, "embeddings", "and no others: it has one for"),
    (broken.ForgetsToNormalise, {}, "embeddings", "divided by its Euclidean length"),
    (broken.EmbedsInDoublePrecision, {}, "embeddings", "not 64 bytes in a bytes"),
    (broken.EmbedsTheLastToken, {}, "embeddings are of the whole prompt", "another first token must change it"),
    (broken.DeclaresEmbeddingsOfNoSize, {}, "load reports what it can do", "embedding_size is 0"),
]


@pytest.mark.parametrize(("executor", "options", "check", "words"), BROKEN)
def test_a_fault_is_found_and_explained(executor, options, check, words):
    class Suite(TestFakeExecutor):
        def make_executor(self, context):
            return fake(context, executor, **options)

    with pytest.raises(AssertionError, match=re.escape(words)):
        getattr(Suite(), f"test_{check.replace(' ', '_')}")()


def test_running_without_pytest():
    results = {result.name: result for result in run_suite(TestFakeExecutor())}
    assert all(result.passed for result in results.values())
    assert results["penalties"].skipped
    assert results["penalties"].message == "not declared in ExecutorInfo.capabilities: penalties"
    assert not results["prefix cache"].skipped


def test_what_an_author_forgets_to_write():
    message = run_suite(ExecutorConformance())[0].message
    assert "define make_executor(self, context)" in message
