"""The figures in a comparison's results: medians of its rounds, and how corelm compares with the best of the others."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Literal

from workload import WORKS

Better = Literal["more", "less", "neither"]
Results = Mapping[str, Any]
"""What run.py writes."""


PACE = "ms/token after the first"


@dataclass(frozen=True)
class Figure:
    """One measure of all engines that have it."""

    name: str
    values: Mapping[str, float]
    better: Better = "more"
    digits: int = 0
    """Decimals worth printing."""

    def ratio(self, engine: str) -> float | None:
        """How many times as good as the best of the others one of ours is, if both are there and it has a better."""
        others = [value for name, value in self.values.items() if not is_ours(name)]
        if engine not in self.values or not others or self.better == "neither":
            return None
        mine = self.values[engine]
        return mine / max(others) if self.better == "more" else min(others) / mine


def is_ours(engine: str) -> bool:
    """Whether it is a variant of corelm."""
    return engine.partition("-")[0] == "corelm"


def ratios(results: Results) -> dict[str, dict[str, float]]:
    """For each variant of corelm, its ratio in each figure that has one."""
    figures = [*in_process(results), *over_http(results)]
    return {
        name: {figure.name: ratio for figure in figures if (ratio := figure.ratio(name)) is not None}
        for name in results["engines"]
        if is_ours(name)
    }


def in_process(results: Results) -> list[Figure]:
    """Of each piece of work, and the pace of its decoding where there is any."""
    found = []
    for name, answers in results["in_process"].items():
        work = WORKS[name]
        in_ms = work.figure.startswith("ms")
        values = _medians(answers, work.value)
        found.append(Figure(f"{name}: {work.figure}", values, "less" if in_ms else "more", digits=int(in_ms)))
        if work.max_tokens > 1:
            pace = _medians(answers, partial(_pace, work.max_tokens - 1))
            found.append(Figure(f"{name}: {PACE}", pace, "less", digits=1))
    return found


def over_http(results: Results) -> list[Figure]:
    """Of each number of clients."""
    found = []
    for clients, answers in results["http"].items():
        for key, name, better, digits in _HTTP_FIGURES:
            found.append(Figure(f"{clients} clients: {name}", _medians(answers, itemgetter(key)), better, digits))
    return found


_HTTP_FIGURES: list[tuple[str, str, Better, int]] = [
    ("tokens_per_second", "output tokens/s", "more", 0),
    ("first_token_ms", "ms to the first token", "less", 0),
    ("ms_per_token", "ms/token", "less", 1),
    ("generator_cpu_percent", "load generator, % of all cores", "neither", 1),
]


def of_engines(results: Results) -> list[Figure]:
    """Of each engine as a whole."""
    return [
        Figure("MiB resident after all work", results["resident_mib"], "less"),
        Figure("MiB resident, server", results["server_resident_mib"], "less"),
        Figure("seconds to start", results["start_seconds"], "less", digits=1),
        Figure("perplexity", results["perplexity"], "neither", digits=3),
        Figure("ms/token that HTTP adds to one stream", _http_adds(results), "less", digits=2),
    ]


def _http_adds(results: Results) -> dict[str, float]:
    every = {figure.name: figure.values for figure in [*in_process(results), *over_http(results)]}
    here = every.get(f"decode-1: {PACE}", {})
    served = every.get("1 clients: ms/token", {})
    return {name: served[name] - here[name] for name in served if name in here}


def _pace(steps: int, answer: Mapping[str, float]) -> float:
    return (answer["seconds"] - answer["first_token_seconds"]) * 1000 / steps


def _medians(answers: Mapping[str, list[Any]], value: Callable[[Any], float]) -> dict[str, float]:
    return {engine: statistics.median(map(value, each)) for engine, each in answers.items() if each}
