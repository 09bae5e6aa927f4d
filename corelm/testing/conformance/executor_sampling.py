"""Checks of sampling: seeds, penalties and masks."""

import math
from typing import Any
from unittest import SkipTest

from corelm.testing.conformance.executor_suite import ExecutorSuite

TOKENS = 6
MARGIN = 1e-3
"""Log-probabilities closer than this may be ranked either way."""


class SamplingChecks(ExecutorSuite):
    """What is sampled; `penalties` and `token_masks` are skipped where they are not declared."""

    def test_seeds(self) -> None:
        with self.bench() as bench:
            prompt, seeds = bench.prompt(9), (0, 1, 2, -7, 2**63 - 1)
            expected = [bench.alone(prompt, TOKENS, temperature=2.0, seed=seed) for seed in seeds]
            neighbour = bench.sequence(bench.prompt(4), temperature=1.0, seed=3)
            bench.step(neighbour)
            lives = [bench.sequence(prompt, temperature=2.0, seed=seed) for seed in seeds]
            found = bench.run(neighbour, *lives, tokens=TOKENS)[1:]
            self.same(
                expected,
                found,
                "the draw for output token i may depend on the sequence's seed and on i, not on what shares the batch: "
                "no generator that sequences share",
            )
            if self.samples:
                assert len(set(map(tuple, expected))) > 1, (
                    "five seeds gave the same tokens at temperature 2: sampling.seed and sampling.temperature must "
                    "count (set samples = False in your suite if the executor is a toy that cannot sample)"
                )

    def test_greedy_and_top_k_1_ignore_the_seed(self) -> None:
        with self.bench() as bench:
            if not self.samples:
                raise SkipTest("samples = False: it always takes the same token")
            prompt = bench.prompt(9)
            expected = bench.alone(prompt, TOKENS)
            ways: list[dict[str, Any]] = [
                {"seed": 5},
                {"temperature": 1e-6, "seed": 5},
                {"temperature": 1.5, "top_k": 1, "seed": 5},
            ]
            for sampling in ways:
                why = f"{sampling} must give the most probable token each time (see sampling.greedy)"
                self.same([expected], [bench.alone(prompt, TOKENS, **sampling)], why)

    def test_penalties(self) -> None:
        with self.bench("penalties", "logprobs") as bench:
            # Negative ones make tokens come again, so that it matters how often they did.
            for presence, frequency in ((1.5, 1.0), (-2.0, 0.5), (0.5, -1.0)):
                live = bench.sequence(
                    bench.prompt(8), presence_penalty=presence, frequency_penalty=frequency, logprobs=64
                )
                bench.run(live, tokens=4 * TOKENS)
                for position, (token, entry) in enumerate(zip(live.output, live.logprobs, strict=True)):
                    before = live.output[:position]
                    scores = {
                        candidate: logprob - presence * (candidate in before) - frequency * before.count(candidate)
                        for candidate, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True)
                    }
                    if token in before and token not in scores:
                        continue  # raised from where nobody can see its own log-probability
                    assert scores.get(token, -math.inf) > max(scores.values()) - MARGIN, (
                        "declared: penalties; presence_penalty is subtracted once from the logits of every token that "
                        f"the output contains, frequency_penalty once for each time: after {before} the best token was "
                        f"{max(scores, key=scores.__getitem__)}, not {token}"
                    )

    def test_repetition_penalty(self) -> None:
        with self.bench("penalties") as bench:
            prompts = [bench.prompt(40, number)[: bench.info.max_model_len // 2] for number in range(4)]
            plain = [bench.alone(prompt, 2 * TOKENS) for prompt in prompts]
            penalised = [bench.alone(prompt, 2 * TOKENS, repetition_penalty=10.0) for prompt in prompts]
            assert plain != penalised, (
                "declared: penalties; repetition_penalty divides positive logits of tokens in prompt or output and "
                "multiplies negative ones, but 10.0 changed nothing in any of four outputs"
            )

    def test_penalties_last_as_long_as_their_sequence(self) -> None:
        with self.bench("penalties") as bench:
            prompt = bench.prompt(8)
            plain = bench.alone(prompt, 2 * TOKENS)
            edits: dict[str, Any] = {"presence_penalty": -1.0, "frequency_penalty": -2.0, "repetition_penalty": 1.5}
            expected = bench.alone(prompt, 2 * TOKENS, **edits)
            live = bench.sequence(prompt, **edits)
            bench.run(live, tokens=TOKENS)
            bench.release(live)
            why = "a sequence that comes back has output already: SequenceStart.token_ids[prompt_len:] is penalised too"
            self.same([expected], bench.run(live, tokens=2 * TOKENS), why)
            bench.release(live)
            self.same([plain], [bench.alone(prompt, 2 * TOKENS)], "penalties end with their sequence")

    def test_allowed_tokens(self) -> None:
        with self.bench("token_masks") as bench:
            allowed = sorted(set(bench.prompt(3, 8)))
            for temperature in (0.0, 2.0):
                output = bench.alone(bench.prompt(6), TOKENS, allowed_token_ids=tuple(allowed), temperature=temperature)
                assert set(output) <= set(allowed), (
                    f"declared: token_masks; allowed_token_ids = {allowed} must be all that is sampled, not {output}"
                )

    def test_logit_bias(self) -> None:
        with self.bench("token_masks") as bench:
            prompt = bench.prompt(6)
            (best,) = bench.alone(prompt, 1)
            other = (best + 1) % bench.info.vocab_size
            forced = bench.alone(prompt, TOKENS, logit_bias={other: 100.0})
            assert forced == [other] * TOKENS, (
                f"declared: token_masks; a logit_bias of 100 must force token {other}, not give {forced}"
            )
            avoided = bench.alone(prompt, 1, logit_bias={best: -100.0})
            assert avoided != [best], f"declared: token_masks; a logit_bias of -100 must rule token {best} out"
            self.same([[best]], [bench.alone(prompt, 1)], "masks and biases end with their sequence")

    def test_bad_words(self) -> None:
        with self.bench("token_masks") as bench:
            prompt = bench.prompt(6)
            first, second = bench.alone(prompt, 2)
            output = bench.alone(prompt, TOKENS, bad_words=[[first]])
            assert first not in output, f"declared: token_masks; the bad word [{first}] must not be sampled: {output}"
            output = bench.alone(prompt, 2, bad_words=[[first, second]])
            held_back = output[0] == first and output[1] != second
            assert held_back, (
                f"declared: token_masks; of the bad word [{first}, {second}] only the last token is ruled out, and "
                f"only after the others: got {output}"
            )
            elsewhere = [(prompt[-1] + 1) % bench.info.vocab_size, first, second]
            output = bench.alone(prompt, 2, bad_words=[elsewhere])
            why = f"the bad word {elsewhere} rules its last token out only where all of its others come before"
            self.same([[first, second]], [output], why)

    def test_min_tokens(self) -> None:
        with self.bench("token_masks") as bench:
            prompt = bench.prompt(6)
            (end,) = bench.alone(prompt, 1)
            live = bench.sequence(prompt, end_token_ids=[end], min_tokens=3, logit_bias={end: 100.0})
            bench.run(live, tokens=2)
            bench.release(live)
            bench.run(live, tokens=4)
            assert end not in live.output[:3], (
                f"declared: token_masks; with min_tokens = 3, SequenceStart.end_token_ids ([{end}]) may not be among "
                f"the first 3 output tokens, also if the sequence was released and came back: {live.output}"
            )
            assert live.output[3] == end, (
                f"declared: token_masks; after 3 output tokens, min_tokens = 3 no longer rules out token {end}, whose "
                f"logit_bias is 100: {live.output}"
            )
