"""What the engines are given to do: prompts as token ids, the same for all, of random tokens that share nothing."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

KV_TOKENS = 40_960
"""Room in every engine's KV cache: twice what the largest work needs."""
VOCABULARY = range(1_000, 40_000)
"""Ordinary tokens of the model: no special ones."""
SHARED_TOKENS = 930
OWN_TOKENS = 3

Figure = Literal["output tokens/s", "prompt tokens/s", "ms to the first token"]


@dataclass(frozen=True)
class Work:
    """Prompts that are run at once."""

    sequences: int
    prompt_tokens: int
    max_tokens: int
    figure: Figure
    after_a_relative: bool = False
    """Whether a prompt that begins the same way has just been run, without being timed."""

    def prompts(self, draw: random.Random) -> list[list[int]]:
        """New prompts."""
        return [draw.choices(VOCABULARY, k=self.prompt_tokens) for _ in range(self.sequences)]

    def value(self, answer: Mapping[str, float]) -> float:
        """The figure of a worker's answer."""
        if self.figure == "output tokens/s":
            return answer["tokens"] / answer["seconds"]
        if self.figure == "prompt tokens/s":
            return self.sequences * self.prompt_tokens / answer["seconds"]
        return answer["first_token_seconds"] * 1000


def relative(prompt: list[int], draw: random.Random) -> list[int]:
    """Another prompt with the same first `SHARED_TOKENS`."""
    return prompt[:SHARED_TOKENS] + draw.choices(VOCABULARY, k=OWN_TOKENS)


WORKS: dict[str, Work] = {
    "decode-1": Work(1, 128, 128, "output tokens/s"),
    "decode-16": Work(16, 128, 128, "output tokens/s"),
    "decode-32": Work(32, 128, 128, "output tokens/s"),
    "context-16": Work(16, 1_024, 128, "output tokens/s"),
    "prefill-512": Work(1, 512, 1, "prompt tokens/s"),
    "prefill-933": Work(1, 933, 1, "prompt tokens/s"),
    "prefill-4096": Work(1, 4_096, 1, "prompt tokens/s"),
    "prefix-cold": Work(1, SHARED_TOKENS + OWN_TOKENS, 1, "ms to the first token"),
    "prefix-warm": Work(1, SHARED_TOKENS + OWN_TOKENS, 1, "ms to the first token", after_a_relative=True),
}
