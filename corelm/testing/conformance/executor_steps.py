"""Checks of plans and block tables: a sequence's tokens depend on nothing but the sequence."""

from typing import Any

from corelm.testing.conformance.executor_suite import ExecutorSuite

TOKENS = 6
"""Output tokens of most checks."""


class StepChecks(ExecutorSuite):
    """Steps, slices and block tables."""

    def test_prefill_and_decode_agree(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(length) for length in bench.lengths(room=TOKENS)]
            decoded = [bench.alone(prompt, TOKENS) for prompt in prompts]
            anew = [
                [bench.alone(prompt + output[:count], 1)[0] for count in range(TOKENS)]
                for prompt, output in zip(prompts, decoded, strict=True)
            ]
            self.same(
                anew,
                decoded,
                "decoding must go on from the KV cache as if everything were computed anew: position p lies in "
                "entry p // block_size of the block table, at offset p % block_size",
            )

    def test_prefill_and_decode_share_a_step(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(length, 1) for length in bench.lengths(room=TOKENS)[: self.max_num_seqs]]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            lives = [bench.sequence(prompt) for prompt in prompts]
            for count in range(1, len(lives) + 1):
                bench.step(*lives[:count])
            self.same(
                expected,
                bench.run(*lives, tokens=TOKENS),
                "a step may mix whole prompts and single tokens of other sequences: each must get what it gets alone",
            )

    def test_results_follow_the_order_of_the_slices(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(5 + number, number) for number in range(4)]
            expected = [bench.alone(prompt, 3) for prompt in prompts]
            lives = [bench.sequence(prompt) for prompt in prompts]
            bench.step(*lives)
            bench.step(*reversed(lives))
            bench.step(lives[2], lives[0], lives[3], lives[1])
            self.same(
                expected,
                [live.output for live in lives],
                "StepResult.token_ids follows the order of plan.slices, which changes from step to step",
            )

    def test_a_full_batch(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(3 + 2 * number, number) for number in range(self.max_num_seqs)]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            found = bench.run(*map(bench.sequence, prompts), tokens=TOKENS)
            self.same(
                expected,
                found,
                f"{self.max_num_seqs} sequences in one step (max_num_seqs) must get what each gets alone",
            )

    def test_chunked_prompts(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(length, 2) for length in bench.lengths(room=TOKENS)[-4:]]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            for chunk in sorted({1, 3, bench.block_size - 1, bench.block_size, bench.block_size + 1} - {0}):
                lives = [bench.sequence(prompt) for prompt in prompts]
                self.same(
                    expected,
                    bench.run(*lives, tokens=TOKENS, chunk=chunk),
                    f"a prompt computed in chunks of {chunk} must give the tokens of one computed at once: later "
                    "chunks attend to all positions before them, through the block table",
                )
                bench.release(*lives)

    def test_used_blocks_are_as_good_as_new(self) -> None:
        with self.bench() as bench:
            longest = min(3 * bench.block_size, bench.info.max_model_len - TOKENS)
            prompts = [bench.prompt(length, 3) for length in (1, longest // 2, longest)]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            for number in range(4, 7):
                bench.alone(bench.prompt(longest, number), 1)
                found = [bench.alone(prompt, TOKENS) for prompt in prompts]
                self.same(
                    expected,
                    found,
                    "blocks come from sequences that ended and hold their keys and values: never read a position that "
                    "the sequence itself has not computed",
                )

    def test_the_whole_context(self) -> None:
        with self.bench() as bench:
            prompt = bench.prompt(bench.info.max_model_len - 3)
            expected = bench.alone(prompt, 3)
            found = bench.run(bench.sequence(prompt), tokens=3, chunk=bench.block_size)
            self.same([expected], found, "prompt and output may fill ExecutorInfo.max_model_len to the last token")

    def test_plans_that_compute_nothing(self) -> None:
        with self.bench() as bench:
            expected = bench.alone(bench.prompt(7), TOKENS)
            live = bench.sequence(bench.prompt(7))
            bench.step()
            bench.step((live, 4))
            bench.step()
            found = bench.run(live, tokens=TOKENS)
            self.same([expected], found, "a plan without slices must change nothing")
            bench.release(live)
            bench.step()

    def test_prompts_that_are_only_read(self) -> None:
        with self.bench() as bench:
            reader = bench.sequence(bench.prompt(9), max_tokens=0)
            other = bench.sequence(bench.prompt(5))
            expected = bench.alone(bench.prompt(5), TOKENS)
            bench.step((reader, 4), other)
            bench.step(other, reader)
            self.same(
                [expected], bench.run(other, tokens=TOKENS), "a slice with sample = False must not disturb others"
            )

    def test_unknown_releases_are_ignored(self) -> None:
        with self.bench() as bench:
            live = bench.sequence(bench.prompt(5))
            bench.step(live, released=(10**6,))
            bench.step(live, released=(10**6, 10**6 + 1))
            bench.release(live)
            bench.step(released=(live.seq_id, live.seq_id))

    def test_aborted_sequences(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(6 + number, number) for number in range(5)]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            first, reading, second, decoding, third = map(bench.sequence, prompts)
            bench.step(first, (reading, 2), second, decoding)
            bench.release(reading)
            bench.step(second, first, decoding)
            bench.release(decoding)
            found = bench.run(first, second, third, tokens=TOKENS)
            self.same(
                [expected[0], expected[2], expected[4]],
                found,
                "when a sequence is released, in its prompt or later, the others must go on as if it had never been",
            )

    def test_released_sequences_come_back(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(length, 4) for length in bench.lengths(room=TOKENS)[-3:]]
            samplings: list[dict[str, Any]] = [{}, {"temperature": 1.5, "seed": 11}]
            for sampling in samplings:
                expected = [bench.alone(prompt, TOKENS, **sampling) for prompt in prompts]
                for chunk in (2**31, 2):
                    lives = [bench.sequence(prompt, **sampling) for prompt in prompts]
                    bench.run(*lives, tokens=TOKENS // 2)
                    bench.release(*lives)
                    self.same(
                        expected,
                        bench.run(*lives, tokens=TOKENS, chunk=chunk),
                        "a released sequence comes back with all its tokens, prompt_len of them prompt, under its old "
                        "seq_id and perhaps in the same plan: it must go on as if nothing had happened, and draw for "
                        "output token i with its seed and i",
                    )
                    bench.release(*lives)

    def test_steps_in_flight(self) -> None:
        with self.bench() as bench:
            prompts = [bench.prompt(length, 5) for length in bench.lengths(room=TOKENS)[-2:]]
            expected = [bench.alone(prompt, TOKENS) for prompt in prompts]
            lives = [bench.sequence(prompt) for prompt in prompts]
            submitted = []
            for _ in range(TOKENS):
                plan = bench.plan(*lives)
                submitted.append((plan, bench.submit(plan)))
                if len(submitted) == bench.info.pipeline_depth:
                    bench.collect(*submitted.pop(0), lives)
            for plan, handle in submitted:
                bench.collect(plan, handle, lives)
            self.same(
                expected,
                [live.output for live in lives],
                f"ExecutorInfo.pipeline_depth = {bench.info.pipeline_depth} steps may be submitted before the first is "
                "collected: a slice may then compute the token that the step before it samples",
            )
