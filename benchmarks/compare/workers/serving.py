"""The worker's side of the protocol, with the standard library alone: it runs in every engine's environment.

A worker first writes a line with what it is, ``version`` and ``details``. Then it answers each line on stdin:

    {"work": "generate", "prompts": [[id, ...], ...], "max_tokens": n}
        -> {"seconds": s, "first_token_seconds": s, "tokens": n}
    {"work": "score", "prompts": [[id, ...], ...]}
        -> {"logprobs": [[log-probability of each token after the first], ...]}

or, where it cannot, with {"error": reason}. All prompts run at once, greedily and past end tokens; the time to the
first token ends when every one of them has it.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

Prompts = list[list[int]]


class Clock:
    """Takes the times of one piece of work."""

    def __init__(self, sequences: int) -> None:
        self._waiting = sequences
        self._start = time.perf_counter()
        self._first = 0.0

    def first_token(self) -> None:
        """One more sequence has its first token."""
        self._waiting -= 1
        if not self._waiting:
            self._first = time.perf_counter() - self._start

    def answer(self, tokens: int) -> dict[str, Any]:
        """The answer to ``generate``, now that all `tokens` are there."""
        return {"seconds": time.perf_counter() - self._start, "first_token_seconds": self._first, "tokens": tokens}


class Engine(Protocol):
    """What a worker makes of an engine."""

    version: str
    details: str

    def generate(self, prompts: Prompts, max_tokens: int) -> dict[str, Any]:
        """`Clock.answer` after `max_tokens` for each prompt."""
        ...

    def score(self, prompts: Prompts) -> list[list[float]]:
        """Log-probabilities of all tokens but the first of each prompt."""
        ...


def serve(load: Callable[[], Engine]) -> None:
    """Load the engine and answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers

    def write(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    engine = load()
    write({"version": engine.version, "details": engine.details})
    for line in sys.stdin:
        try:
            write(_do(engine, json.loads(line)))
        except Exception as error:  # noqa: BLE001 the report gives it
            write({"error": f"{type(error).__name__}: {error}"})


def _do(engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
    if request["work"] == "generate":
        return engine.generate(request["prompts"], request["max_tokens"])
    return {"logprobs": engine.score(request["prompts"])}
