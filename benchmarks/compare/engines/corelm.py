"""corelm as it is installed beside the Python that runs the comparison, with variants by environment."""

import sys
from collections.abc import Mapping
from pathlib import Path

from process import Command
from workload import KV_TOKENS

from engines.engine import WORKERS, Engine, Place

REFERENCE = "corelm-float32"
"""Exact arithmetic: what the perplexities of all others are compared with."""


def variant(spec: str) -> Engine:
    """An engine from ``NAME`` or ``NAME:VARIABLE=VALUE,...``; the name ``default`` is left out of the engine's."""
    name, _, variables = spec.partition(":")
    env = dict(pair.split("=", 1) for pair in variables.split(",") if pair)
    return corelm("corelm" if name == "default" else f"corelm-{name}", env)


def reference() -> Engine:
    """The float32 mode."""
    return corelm(REFERENCE, {"CORELM_DTYPE": "float32"})


def corelm(name: str, env: Mapping[str, str]) -> Engine:
    def worker(place: Place) -> Command:
        return Command([sys.executable, WORKERS / "corelm_worker.py", place.model, str(KV_TOKENS)], env)

    def server(place: Place, port: int) -> Command:
        program = Path(sys.executable).parent / "corelm"
        settings = {"CORELM_KV_CACHE_TOKENS": str(KV_TOKENS), "CORELM_OPENAI_PORT": str(port)}
        return Command([program, "run", "--model", place.model], {**settings, **env})

    return Engine(name, lambda place: None, worker, server)
