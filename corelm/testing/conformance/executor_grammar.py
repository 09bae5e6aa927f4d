"""Checks of what grammars ask of an executor: masks and forced tokens."""

from typing import Any

from corelm.testing.conformance.executor_bench import Bench, Live, explained
from corelm.testing.conformance.executor_suite import ExecutorSuite

TOKENS = 4


class GrammarChecks(ExecutorSuite):
    """`grammar`; skipped where it is not declared."""

    def test_masks(self) -> None:
        with self.bench("grammar") as bench:
            vocabulary = range(bench.info.vocab_size)
            expected = bench.alone(bench.prompt(5), TOKENS)
            plain, free = bench.sequence(bench.prompt(5)), bench.sequence(bench.prompt(5))
            free.allowed = vocabulary
            bound = [bench.sequence(bench.prompt(3 + number), temperature=number % 2) for number in range(4)]
            for step in range(TOKENS):
                for number, live in enumerate(bound):
                    live.allowed = {vocabulary[-1 - number], (7 * step + number) % len(vocabulary)}
                bench.step(bound[0], plain, *bound[1:3], free, bound[3])
                for live in bound:
                    assert live.output[-1] in (live.allowed or ()), (
                        "declared: grammar; SequenceSlice.allowed says what may be sampled, bit i % 8 of byte i // 8 "
                        f"for token i: {sorted(live.allowed or ())} were allowed, and {live.output[-1]} came"
                    )
            why = "a mask that allows everything must change nothing, nor may the masks of others"
            self.same([expected] * 2, [plain.output, free.output], why)

    def test_masks_hold_for_one_token(self) -> None:
        with self.bench("grammar") as bench:
            prompt = bench.prompt(5)
            best, following = bench.alone(prompt, 2)
            live = bench.sequence(prompt)
            live.allowed = {best}
            bench.step(live)
            live.allowed = None
            bench.step(live)
            self.same([[best, following]], [live.output], "a slice without a mask is as if there had never been one")

    def test_a_mask_that_leaves_nothing(self) -> None:
        with self.bench("grammar") as bench:
            other, lost = bench.sequence(bench.prompt(5)), bench.sequence(bench.prompt(3))
            expected = bench.alone(bench.prompt(5), 1)
            lost.allowed = ()
            plan = bench.plan(lost, other)
            with explained("collect()", plan):
                result = bench.executor.collect(bench.submit(plan))
            assert list(result.errors) == [lost.seq_id], (
                "declared: grammar; a sequence that no token is left for fails alone, in StepResult.errors: "
                f"{dict(result.errors)} instead of sequence {lost.seq_id}"
            )
            self.same([expected], [result.token_ids[1]], "the others go on")

    def test_forced_tokens(self) -> None:
        samplings: list[dict[str, Any]] = [{}, {"temperature": 1.5, "seed": 5}]
        with self.bench("grammar") as bench:
            forced = bench.prompt(bench.block_size + 3, 9)
            for sampling in samplings:
                expected = self._as_if_sampled(bench, forced, **sampling)
                for chunk in (2**31, 2):
                    live = self._forced(bench, forced, **sampling)
                    neighbour = bench.sequence(bench.prompt(2))
                    bench.run(live, neighbour, tokens=1 + len(forced) + TOKENS, chunk=chunk)
                    self.same(
                        [expected],
                        [live.output],
                        "declared: grammar; SequenceSlice.forced are tokens of the output that the executor did not "
                        "sample: append them, perhaps more than the slice computes, compute them like a prompt's, and "
                        "count them in the index of the next draw",
                    )
                    bench.release(live, neighbour)

    def test_forced_tokens_of_a_sequence_that_comes_back(self) -> None:
        with self.bench("grammar") as bench:
            forced = bench.prompt(5, 9)
            expected = self._as_if_sampled(bench, forced)
            untold, told = self._forced(bench, forced), self._forced(bench, forced)
            bench.step((told, 2))
            bench.release(untold, told)
            found = bench.run(untold, told, tokens=1 + len(forced) + TOKENS)
            self.same([expected] * 2, found, "SequenceStart.token_ids has all tokens, those that were forced too")

    def test_forced_tokens_are_penalised(self) -> None:
        with self.bench("grammar", "penalties") as bench:
            (best,) = bench.alone(bench.prompt(6), 1)
            forced = [best, *bench.prompt(3, 9), best]
            for edits in ({"presence_penalty": 2.0, "frequency_penalty": 2.0}, {"repetition_penalty": 10.0}):
                expected = self._as_if_sampled(bench, forced, **edits)
                live = self._forced(bench, forced, **edits)
                found = bench.run(live, tokens=1 + len(forced) + TOKENS)
                self.same([expected], found, "tokens that were forced count for penalties like those that were sampled")
                bench.release(live)

    def _forced(self, bench: Bench, forced: list[int], **sampling: Any) -> Live:
        """A sequence that sampled one token and whose next ones are forced."""
        live = bench.sequence(bench.prompt(6), **sampling)
        bench.step(live)
        bench.force(live, forced)
        return live

    def _as_if_sampled(self, bench: Bench, forced: list[int], **sampling: Any) -> list[int]:
        """The output of a sequence that is told of the same tokens when it starts."""
        prompt = bench.prompt(6)
        (first,) = bench.alone(prompt, 1, **sampling)
        live = bench.sequence([*prompt, first, *forced], prompt_len=len(prompt), **sampling)
        (output,) = bench.run(live, tokens=1 + len(forced) + TOKENS)
        bench.release(live)
        return output
