"""Checks of what an executor may declare about its KV cache: shared beginnings, copied blocks, swapping."""

from typing import Any
from unittest import SkipTest

from corelm.testing.conformance.executor_bench import Bench
from corelm.testing.conformance.executor_suite import ExecutorSuite

TOKENS = 6


class MemoryChecks(ExecutorSuite):
    """`prefix_cache`, `copy_blocks` and swap blocks; skipped where they are not declared."""

    def test_prefix_cache(self) -> None:
        why = (
            "declared: prefix_cache; a sequence's first slice may start beyond 0. Its blocks before that hold what "
            "another sequence, perhaps released since, computed for the same tokens; they are only read"
        )
        with self.bench("prefix_cache") as bench:
            beginning = bench.prompt(_whole_blocks(bench))
            prompts = [beginning + bench.prompt(4, number) for number in (1, 2, 3)]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            first = bench.sequence(prompts[0])
            bench.run(first, tokens=1)
            second, _ = bench.branch(first, prompts[1], len(beginning))
            bench.run(second, tokens=2, chunk=2)
            bench.run(first, tokens=2)
            self.same(expected[:2], bench.run(first, second, tokens=TOKENS), why)
            bench.release(first)
            third, _ = bench.branch(second, prompts[2], len(beginning))
            self.same(expected[2:], bench.run(third, tokens=TOKENS), why)

    def test_copied_blocks_let_sequences_fork(self) -> None:
        samplings: list[dict[str, Any]] = [{}, {"temperature": 1.5, "seed": 5}, {"temperature": 1.5, "seed": 6}]
        with self.bench("copy_blocks", "prefix_cache") as bench:
            for length in _partial_blocks(bench):
                prompt = bench.prompt(length)
                expected = [bench.alone(prompt, TOKENS, **sampling) for sampling in samplings]
                parent = bench.sequence(prompt)
                bench.run(parent, tokens=1)
                one, copy_one = bench.branch(parent, prompt, length - 1, **samplings[1])
                two, copy_two = bench.branch(parent, prompt, length - 1, **samplings[2])
                bench.step(parent, one, two, copies=copy_one + copy_two)
                self.same(
                    expected,
                    bench.run(parent, one, two, tokens=TOKENS),
                    "declared: copy_blocks; StepPlan.copies are done before anything is computed, in all layers, for "
                    "keys and values: a child goes on in the copy of its parent's last block, and each then writes to "
                    "its own",
                )
                bench.release(parent, one, two)

    def test_copies_are_done_in_their_order(self) -> None:
        with self.bench("copy_blocks", "prefix_cache") as bench:
            length = _partial_blocks(bench)[0]
            prompt = bench.prompt(length)
            expected = bench.alone(prompt, TOKENS)
            parent = bench.sequence(prompt)
            bench.run(parent, tokens=1)
            _, first = bench.branch(parent, prompt, length - 1)
            child, second = bench.branch(parent, prompt, length - 1)
            between, target = first[0][1], second[0][1]
            bench.step(copies=[*first, (between, target)])
            why = "StepPlan.copies are done one after the other: a later one may copy what an earlier one brought"
            self.same([expected], bench.run(child, tokens=TOKENS), why)

    def test_swapping(self) -> None:
        with self.bench() as bench:
            if not bench.info.num_swap_blocks:
                raise SkipTest("ExecutorInfo.num_swap_blocks is 0: it does not swap")
            prompts = [bench.prompt(length, 6) for length in bench.lengths(room=TOKENS)[-2:]]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            lives = [bench.sequence(prompt) for prompt in prompts]
            bench.run(*lives, tokens=2)
            kept: list[tuple[int, int]] = []
            out: list[tuple[int, int]] = []
            for live in lives:
                kept.append((len(out), live.computed))
                out += bench.swap_out(live, len(out))
            intruders = [bench.sequence(bench.prompt(len(prompt), 7)) for prompt in prompts]
            bench.step(*intruders, swap_out=out)
            bench.release(*intruders)
            back = [pair for live, place in zip(lives, kept, strict=True) for pair in bench.swap_in(live, *place)]
            bench.step(*lives, swap_in=back)
            self.same(
                expected,
                bench.run(*lives, tokens=TOKENS),
                "declared: num_swap_blocks; swap_out copies KV blocks, in all layers, keys and values, to swap blocks "
                "before anything of the step is computed, since another sequence may already have them; swap_in copies "
                "them to other KV blocks, and the sequence is started again where it was",
            )

    def test_changing_places_with_a_swapped_sequence(self) -> None:
        with self.bench() as bench:
            if not bench.info.num_swap_blocks:
                raise SkipTest("ExecutorInfo.num_swap_blocks is 0: it does not swap")
            length = bench.lengths(room=TOKENS)[-1]
            prompts = [bench.prompt(length, number) for number in (8, 9)]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            one, other = map(bench.sequence, prompts)
            bench.run(one, other, tokens=2)
            computed, size = one.computed, len(one.blocks)
            bench.step(other, swap_out=bench.swap_out(one, 0))
            leaving = other.computed
            out = bench.swap_out(other, size)
            bench.step(one, swap_out=out, swap_in=bench.swap_in(one, 0, computed))
            bench.step(one, other, swap_in=bench.swap_in(other, size, leaving))
            why = "StepPlan.swap_out is done before swap_in, which may bring another sequence into the same KV blocks"
            self.same(expected, bench.run(one, other, tokens=TOKENS), why)

    def test_what_is_declared_fits_together(self) -> None:
        with self.bench() as bench:
            if bench.info.num_swap_blocks:
                assert "prefix_cache" in bench.info.capabilities, (
                    "num_swap_blocks needs the capability prefix_cache: a swapped sequence starts beyond position 0"
                )


def _whole_blocks(bench: Bench) -> int:
    """Tokens of a beginning that others can share."""
    size = bench.block_size
    count = min(2, (bench.info.max_model_len - TOKENS - 4) // size)
    if not count:
        raise SkipTest("a block holds the whole context: nothing can be shared")
    return count * size


def _partial_blocks(bench: Bench) -> list[int]:
    """Prompt lengths whose last token but one does not fill a block."""
    lengths = [length for length in bench.lengths(room=TOKENS) if (length - 1) % bench.block_size]
    if not lengths:
        raise SkipTest("blocks of one token are never copied")
    return lengths
