"""Checks of log-probabilities."""

import math
from collections.abc import Sequence
from typing import Any

from corelm.outputs import TokenLogprobs
from corelm.testing.conformance.executor_suite import ExecutorSuite

TOKENS = 6
TOLERANCE = 2e-3
"""Log-probabilities of one token, computed in different ways, differ by less in float32."""

ROUGH_TOLERANCE = 0.2
"""The same for executors that are not exact. A temperature of 2 in place of 0.5 makes more of a difference."""


class LogprobChecks(ExecutorSuite):
    """`logprobs`; skipped where it is not declared."""

    def test_logprobs(self) -> None:
        with self.bench("logprobs") as bench:
            wanted: list[tuple[int, dict[str, Any]]] = [(0, {}), (3, {}), (5, {"temperature": 1.5, "seed": 3})]
            for count, sampling in wanted:
                live = bench.sequence(bench.prompt(7), logprobs=count, **sampling)
                other = bench.sequence(bench.prompt(4))
                bench.run(live, other, tokens=TOKENS)
                assert not other.logprobs, "StepResult.logprobs must hold only sequences that asked (sampling.logprobs)"
                _check(live.logprobs, live.output, count, bench.info.vocab_size, "logprobs")
                if live.sampling.greedy:
                    assert all(entry.rank == 1 for entry in live.logprobs), "the token of greedy decoding has rank 1"

    def test_logprobs_are_the_models_own(self) -> None:
        with self.bench("logprobs") as bench:
            cold, hot = (
                bench.sequence(bench.prompt(7), logprobs=4, seed=3, temperature=temperature)
                for temperature in (0.5, 2.0)
            )
            bench.run(cold, hot, tokens=1)
            tolerance = TOLERANCE if self.exact else ROUGH_TOLERANCE
            assert _close(cold.logprobs[0].top_logprobs, hot.logprobs[0].top_logprobs, tolerance), (
                "log-probabilities are the model's: before temperature, penalties and masks"
            )

    def test_prompt_logprobs(self) -> None:
        with self.bench("logprobs") as bench:
            writer = bench.sequence(bench.prompt(7), logprobs=2)
            bench.run(writer, tokens=TOKENS)
            tokens = writer.tokens
            for chunk in (2**31, 3, 1):
                reader = bench.sequence(tokens, prompt_logprobs=2)
                bench.run(reader, tokens=2, chunk=chunk)
                found = reader.prompt_logprobs
                assert len(found) == len(tokens) - 1, (
                    f"StepResult.prompt_logprobs must hold one entry for each prompt token but the first, over all "
                    f"chunks (start + 1 to start + num_tokens of each slice, as far as it is prompt): {len(found)} "
                    f"came for {len(tokens)} tokens in chunks of {min(chunk, len(tokens))}"
                )
                _check(found, tokens[1:], 2, bench.info.vocab_size, "prompt_logprobs")
                scores = [entry.logprob for entry in found[-TOKENS:]]
                if self.exact:
                    assert _close(scores, [entry.logprob for entry in writer.logprobs]), (
                        "prompt_logprobs of a text must be the logprobs that it was generated with"
                    )


def _check(entries: Sequence[TokenLogprobs], tokens: Sequence[int], count: int, vocab_size: int, name: str) -> None:
    assert [entry.token_id for entry in entries] == list(tokens), (
        f"StepResult.{name} must hold one entry for each token, whose token_id is that token"
    )
    for entry in entries:
        top = entry.top_logprobs
        assert len(entry.top_ids) == len(top) == min(count, vocab_size), (
            f"{name} = {count} asks for {count} top tokens: {len(entry.top_ids)} ids and {len(top)} values came"
        )
        assert all(map(math.isfinite, (entry.logprob, *top))), f"StepResult.{name} must be finite: {entry}"
        assert list(top) == sorted(top, reverse=True), (
            f"StepResult.{name} must have the most probable token first: {entry}"
        )
        total = math.fsum(map(math.exp, top))
        assert max(total - 1, entry.logprob) < TOLERANCE, (
            f"StepResult.{name} must be natural logarithms of probabilities that add up to 1 at most: {entry}"
        )
        assert len(set(entry.top_ids) & set(range(vocab_size))) == len(top), (
            f"StepResult.{name} must name different tokens of the vocabulary: {entry}"
        )
        above = sum(logprob > entry.logprob + TOLERANCE for logprob in top)
        best_rank, worst_rank = above + 1, vocab_size
        if entry.token_id in entry.top_ids:
            own = top[entry.top_ids.index(entry.token_id)]
            assert _close([own], [entry.logprob]), f"the token has another logprob among the top ones: {entry}"
            worst_rank = sum(logprob > entry.logprob - TOLERANCE for logprob in top)
        assert best_rank <= entry.rank <= worst_rank, f"TokenLogprobs.rank of the most probable token is 1: {entry}"


def _close(one: Sequence[float], other: Sequence[float], tolerance: float = TOLERANCE) -> bool:
    return all(abs(a - b) < tolerance for a, b in zip(one, other, strict=True))
