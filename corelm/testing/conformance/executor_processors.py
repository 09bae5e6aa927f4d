"""Checks of logits processors."""

from collections.abc import Sequence
from typing import Any
from unittest import SkipTest

from corelm.contracts.logits import LogitsProcessor, LogitsRow
from corelm.testing.conformance.executor_suite import ExecutorSuite

TOKENS = 4
TOSSES = 32


class _Force(LogitsProcessor):
    """Lets nothing but the token be sampled that is its argument; raises if that is None."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[list[int], int]]] = []
        """For each call, the tokens and prompt length of each row."""

    def check(self, argument: Any) -> None:
        pass

    def apply(self, logits: Any, rows: Sequence[LogitsRow]) -> None:
        self.seen.append([([int(token) for token in row.token_ids], row.prompt_len) for row in rows])
        for index, row in enumerate(rows):
            if row.argument is None:
                raise ValueError("told to fail")
            logits[index] = float("-inf")
            logits[index, row.argument] = 0.0


class _Toss(LogitsProcessor):
    """Makes tokens 0 and 1 equally probable, and all others impossible."""

    def check(self, argument: Any) -> None:
        pass

    def apply(self, logits: Any, rows: Sequence[LogitsRow]) -> None:
        for index in range(len(rows)):
            logits[index] = float("-inf")
            logits[index, 0] = logits[index, 1] = 0.0


class ProcessorChecks(ExecutorSuite):
    """`logits_processors`; skipped where it is not declared."""

    def test_logits_processors(self) -> None:
        force = _Force()
        with self.bench("logits_processors", logits_processors={"force": force}) as bench:
            expected = bench.alone(bench.prompt(5), TOKENS)
            other = bench.sequence(bench.prompt(5))
            users = [
                bench.sequence(bench.prompt(length), logits_processors={"force": token}, temperature=1.0)
                for length, token in ((3, 1), (6, 2))
            ]
            for count in range(TOKENS):
                bench.step(users[0], other, users[1])
                rows = [(live.tokens[:-1], live.prompt_len) for live in users]
                calls = len(force.seen)
                assert calls == count + 1, (
                    f"declared: logits_processors; a processor is called once in each step, with all rows that use it, "
                    f"and not when none does: {calls} calls in {count + 1} steps"
                )
                assert sorted(force.seen[-1]) == sorted(rows), (
                    "declared: logits_processors; a LogitsRow holds prompt and output so far and the prompt's length: "
                    f"{force.seen[-1]} instead of {rows}"
                )
            outputs = [live.output for live in users]
            assert outputs == [[1] * TOKENS, [2] * TOKENS], (
                "declared: logits_processors; apply(logits, rows) changes logits in place, row i for rows[i], before "
                f"the temperature: tokens 1 and 2 were forced, and {outputs} came"
            )
            self.same([expected], [other.output], "sequences that use no processor must not notice one")

    def test_logits_processors_keep_their_order(self) -> None:
        with self.bench("logits_processors", logits_processors={"one": _Force(), "two": _Force()}) as bench:
            output = bench.alone(bench.prompt(3), 1, logits_processors={"two": 2, "one": 1})
            assert output == [2], (
                "declared: logits_processors; they are applied in the order of context.logits_processors, not "
                "of the request"
            )

    def test_a_failing_logits_processor(self) -> None:
        with self.bench("logits_processors", logits_processors={"force": _Force()}) as bench:
            other = bench.sequence(bench.prompt(5))
            good, bad = (bench.sequence(bench.prompt(3), logits_processors={"force": token}) for token in (7, None))
            plan = bench.plan(other, bad, good)
            result = bench.executor.collect(bench.submit(plan))
            assert list(result.errors) == [bad.seq_id], (
                "declared: logits_processors; where apply() raises, ask for one row at a time and report those that "
                f"raise in StepResult.errors: {dict(result.errors)} instead of sequence {bad.seq_id} alone"
            )
            assert result.token_ids[2] == [7], "a row that raises must not spoil the other rows of its processor"
            self.same([bench.alone(other.tokens, 1)], [result.token_ids[0]], "one that uses no processor goes on")

    def test_draws_are_fair(self) -> None:
        with self.bench("logits_processors", logits_processors={"toss": _Toss()}) as bench:
            if not self.samples:
                raise SkipTest("samples = False: it always takes the same token")
            outputs = [
                bench.alone(bench.prompt(3), TOSSES, logits_processors={"toss": None}, temperature=1.0, seed=seed)
                for seed in (0, 1, 7, -7, 2**63 - 1)
            ]
            assert len(set(map(tuple, outputs))) == len(outputs), (
                f"two seeds of five, of 64 bits and either sign, gave the same {TOSSES} draws between equal tokens"
            )
            for output in outputs:
                assert 0 < sum(output) < TOSSES, (
                    f"{TOSSES} draws between two equal tokens gave one of them only: the draw for output token i "
                    "depends on sampling.seed and on i"
                )
