"""Checks of how a token is drawn: temperature, top_k, top_p, min_p and whole seeds."""

import math
from typing import Any
from unittest import SkipTest

from corelm.outputs import TokenLogprobs
from corelm.testing.conformance.executor_bench import Bench
from corelm.testing.conformance.executor_suite import ExecutorSuite

SEEDS = range(24)
TOP = 64
SLACK = 1e-3
"""For rounding."""


class PickingChecks(ExecutorSuite):
    """Judged by the log-probabilities of what is drawn, which are the model's own; skipped where there are none."""

    def test_top_k(self) -> None:
        with self._drawing() as bench:
            for entry in _draws(bench, temperature=2.0, top_k=3):
                assert entry.rank <= 3, (
                    f"with top_k=3 a token of rank {entry.rank} was drawn: only the 3 most probable ones may be"
                )

    def test_top_p(self) -> None:
        with self._drawing() as bench:
            for entry in _draws(bench, temperature=1.0, top_p=0.3):
                above = sum(math.exp(value) for value in entry.top_logprobs if value > entry.logprob + SLACK)
                assert above < 0.3 + SLACK, (
                    f"with top_p=0.3 a token was drawn, and more probable ones have {above:.2f} together: draw from "
                    "the smallest set that reaches top_p"
                )

    def test_min_p(self) -> None:
        with self._drawing() as bench:
            for entry in _draws(bench, temperature=1.0, min_p=0.3):
                share = math.exp(entry.logprob - entry.top_logprobs[0])
                assert share >= 0.3 - SLACK, (
                    f"with min_p=0.3 a token was drawn that is {share:.2f} times as probable as the most probable one"
                )

    def test_temperature(self) -> None:
        with self._drawing() as bench:
            draws = [_draws(bench, temperature=value) for value in (0.2, 1.0, 2.0)]
            if all(entry.rank == 1 for entry in draws[-1]):
                raise SkipTest("it draws nothing but its most probable token: a toy")
            cold, warm, hot = map(_mean_logprob, draws)
            assert cold > max(warm, hot), (
                f"at temperature 0.2 drawn tokens have a mean log-probability of {cold:.2f}, at 1 of {warm:.2f} and at "
                f"2 of {hot:.2f}: divide the logits by the temperature"
            )

    def test_all_bits_of_the_seed_count(self) -> None:
        with self._drawing() as bench:
            prompt = bench.prompt(9)
            drawn = {tuple(bench.alone(prompt, 8, temperature=2.0, seed=5 + high)) for high in (0, 2**32, 2**62)}
            assert len(drawn) > 1, "seeds that differ above their lower 32 bits draw the same: use all 64"

    def _drawing(self) -> Any:
        if not self.samples:
            raise SkipTest("samples = False: it always takes the same token")
        return self.bench("logprobs")


def _draws(bench: Bench, **sampling: Any) -> list[TokenLogprobs]:
    """What two tokens of many seeds look like."""
    found: list[TokenLogprobs] = []
    for seed in SEEDS:
        life = bench.sequence(bench.prompt(9), seed=seed, logprobs=TOP, **sampling)
        bench.run(life, tokens=2)
        found += life.logprobs
        bench.release(life)
    return found


def _mean_logprob(entries: list[TokenLogprobs]) -> float:
    return sum(entry.logprob for entry in entries) / len(entries)
