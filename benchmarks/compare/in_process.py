"""Measures engines in worker processes, in turns."""

import itertools
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from engines.engine import Engine, Place
from perplexity import perplexity
from worker import EngineError, Worker
from workload import WORKS, Work, relative

Failures = dict[str, dict[str, str]]
"""For each engine, what it could not do, and why."""


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def workers(engines: Sequence[Engine], place: Place, logs: Path, failures: Failures) -> Iterator[dict[str, Worker]]:
    """The workers that start, all paused."""
    with ExitStack() as running:
        started: dict[str, Worker] = {}
        for engine in engines:
            say(f"starting {engine.name}")
            try:
                worker = Worker(engine.worker(place), logs / f"{engine.name}.log")
            except (EngineError, OSError) as error:
                failures.setdefault(engine.name, {})["start"] = str(error)
                continue
            running.callback(worker.process.stop)
            worker.process.pause()
            started[engine.name] = worker
        yield started


def measure(
    running: Mapping[str, Worker], names: Sequence[str], rounds: int, failures: Failures
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Work, engine and answer, again and again; before the first round comes one that only warms up.

    All engines get a piece of work one after the other, then the next piece, and in the next round all of it again with
    other prompts and another engine first.
    """
    for round_number, name in itertools.product(range(rounds + 1), names):
        say(f"round {round_number} of {rounds}{'' if round_number else ' (warming up)'}: {name}")
        for engine in _rotated(list(running), round_number):
            if name in failures.get(engine, {}):
                continue
            draw = random.Random(f"{round_number} {name}")
            try:
                answer = _do(running[engine], WORKS[name], draw)
            except EngineError as error:
                failures.setdefault(engine, {})[name] = str(error)
                continue
            if round_number:
                yield name, engine, answer


def score(running: Mapping[str, Worker], pieces: list[list[int]], failures: Failures) -> dict[str, float]:
    """The perplexity of each engine on the same text."""
    perplexities = {}
    for engine, worker in running.items():
        say(f"perplexity of {engine}")
        try:
            perplexities[engine] = perplexity(worker.ask(work="score", prompts=pieces)["logprobs"])
        except (EngineError, ValueError) as error:
            failures.setdefault(engine, {})["perplexity"] = str(error)
    return perplexities


def _do(worker: Worker, work: Work, draw: random.Random) -> dict[str, Any]:
    prompts = work.prompts(draw)
    if work.after_a_relative:
        before = [relative(prompt, draw) for prompt in prompts]
        worker.ask(work="generate", prompts=before, max_tokens=work.max_tokens)
    answer = worker.ask(work="generate", prompts=prompts, max_tokens=work.max_tokens)
    if answer["tokens"] != work.sequences * work.max_tokens:
        raise EngineError(f"it made {answer['tokens']} tokens instead of {work.sequences * work.max_tokens}")
    return answer


def _rotated(names: list[str], by: int) -> list[str]:
    by %= len(names) or 1
    return names[by:] + names[:by]
