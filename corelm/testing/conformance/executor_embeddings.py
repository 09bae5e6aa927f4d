"""Checks of embeddings."""

import math
import struct
from collections.abc import Sequence

from corelm.testing.conformance.executor_bench import Bench
from corelm.testing.conformance.executor_suite import ExecutorSuite

TOLERANCE = 1e-3
"""By so much at most the numbers of one embedding differ, computed in different ways in float32."""
ROUGH_COSINE = 0.9
"""The least cosine of two embeddings of one prompt, computed by an executor that is not exact."""


class EmbeddingChecks(ExecutorSuite):
    """`embeddings`; skipped where it is not declared."""

    def test_embeddings(self) -> None:
        with self.bench("embeddings") as bench:
            prompts = [bench.prompt(length, 8) for length in bench.lengths(room=1)[-3:]]
            expected = [_alone(bench, prompt) for prompt in prompts]
            for vector in expected:
                assert abs(math.hypot(*vector) - 1) < TOLERANCE, (
                    f"an embedding is divided by its Euclidean length, and has length 1: this has {math.hypot(*vector)}"
                )
            for chunk in (2**31, 3, 1):
                lives = [bench.sequence(prompt, embed=True) for prompt in prompts]
                neighbours = [bench.sequence(bench.prompt(5))] if chunk > 3 else []
                self._alike(
                    expected,
                    bench.embed(*lives, *neighbours, chunk=chunk)[: len(lives)],
                    f"an embedding depends on its prompt alone, not on its neighbours, nor on how it is cut (here into "
                    f"chunks of {min(chunk, len(prompts[-1]))})",
                )
                bench.release(*lives, *neighbours)

    def test_embeddings_are_of_the_whole_prompt(self) -> None:
        with self.bench("embeddings") as bench:
            prompt = bench.prompt(5)
            first, last = [(prompt[0] + 1) % bench.info.vocab_size, *prompt[1:]], [*prompt[:-1], prompt[0]]
            expected = _alone(bench, prompt)
            for changed, which in ((first, "first"), (last, "last")):
                if changed != prompt:
                    assert _alone(bench, changed) != expected, (
                        f"an embedding is the hidden state of the last position, which has seen the whole prompt: "
                        f"another {which} token must change it"
                    )

    def test_embeddings_after_a_release(self) -> None:
        with self.bench("embeddings") as bench:
            prompt = bench.prompt(bench.lengths(room=1)[-1])
            expected = _alone(bench, prompt)
            for computed in (1, len(prompt)):
                live = bench.sequence(prompt, embed=True)
                bench.step((live, computed))
                bench.release(live)
                live.embedding = None
                why = "a released sequence that comes back is embedded as if nothing had happened"
                self._alike([expected], bench.embed(live), why)
                bench.release(live)

    def test_embeddings_of_shared_beginnings(self) -> None:
        with self.bench("embeddings", "prefix_cache") as bench:
            size = bench.block_size
            prompts = [bench.prompt(size) + bench.prompt(3, number) for number in (1, 2)]
            expected = [_alone(bench, prompt) for prompt in prompts]
            first = bench.sequence(prompts[0], embed=True)
            bench.embed(first)
            second, _ = bench.branch(first, prompts[1], size, embed=True)
            why = "a sequence to be embedded may start beyond 0, in blocks that others filled"
            self._alike(expected, [first.embedding, *bench.embed(second)], why)

    def _alike(self, expected: Sequence[Sequence[float]], found: Sequence[bytes | None], why: str) -> None:
        for one, other in zip(expected, map(_numbers, found), strict=True):
            if self.exact:
                good = all(abs(a - b) < TOLERANCE for a, b in zip(one, other, strict=True))
            else:
                good = sum(a * b for a, b in zip(one, other, strict=True)) > ROUGH_COSINE
            assert good, f"{why} (expected {list(one)[:4]}..., got {list(other)[:4]}...)"


def _alone(bench: Bench, prompt: Sequence[int]) -> tuple[float, ...]:
    live = bench.sequence(prompt, embed=True)
    (data,) = bench.embed(live)
    bench.release(live)
    return _numbers(data)


def _numbers(data: bytes | None) -> tuple[float, ...]:
    data = data or b""
    return struct.unpack(f"<{len(data) // 4}f", data)
