"""One comparison from its engines to its results."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import in_process
import machine
import over_http
import perplexity
from engines import corelm, vllm
from engines.engine import Engine, Place
from in_process import Failures
from install import InstallError
from workload import WORKS

CLIENTS = (1, 8, 32, 64)
PERPLEXITY = "perplexity"
EVERYTHING = [*WORKS, PERPLEXITY, *(f"http-{number}" for number in CLIENTS)]

PARTS = ("ready", "start_seconds", "in_process", "resident_mib", "perplexity", "http", "server_resident_mib")
"""Results that are empty unless they are measured."""


class Comparison:
    """Installs engines, measures them and keeps the results in a file."""

    def __init__(self, engines: Sequence[Engine], place: Place, options: argparse.Namespace) -> None:
        """`options` are those of run.py."""
        self._place = place
        self._works = [name for name in WORKS if name in options.work]
        self._scores = PERPLEXITY in options.work
        self._clients = [number for number in CLIENTS if f"http-{number}" in options.work]
        self._rounds: int = options.rounds
        self._out: Path = options.out
        self.logs = place.home / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._failures: Failures = {}
        self._engines = [engine for engine in engines if self._installed(engine)]
        self.results: dict[str, Any] = {
            "command": sys.argv,
            "machine": machine.describe(),
            "model": place.model.name,
            "engines": [engine.name for engine in self._engines],
            "commands": {engine.name: str(engine.worker(place)) for engine in self._engines},
            "rounds": self._rounds,
            "load": {"before": machine.load()},
            "failures": self._failures,
            **{part: {} for part in PARTS},
        }

    def run(self) -> None:
        """Do everything. If it is interrupted, what there is so far is kept."""
        try:
            if self._works or self._scores:
                self._in_process()
            if self._scores:
                self._reference()
            if self._clients and self._load_generator():
                self._over_http()
        finally:
            self._save()

    def _in_process(self) -> None:
        with in_process.workers(self._engines, self._place, self.logs, self._failures) as running:
            self.results["ready"] = {name: worker.ready for name, worker in running.items()}
            self.results["start_seconds"] = {name: worker.start_seconds for name, worker in running.items()}
            for work, engine, answer in in_process.measure(running, self._works, self._rounds, self._failures):
                self.results["in_process"].setdefault(work, {}).setdefault(engine, []).append(answer)
            self.results["resident_mib"] = {name: worker.process.resident_mib() for name, worker in running.items()}
            if self._scores:
                text = perplexity.pieces(self._place.model)
                self.results["perplexity"] = in_process.score(running, text, self._failures)

    def _reference(self) -> None:
        with in_process.workers([corelm.reference()], self._place, self.logs, self._failures) as running:
            text = perplexity.pieces(self._place.model)
            self.results["perplexity"] |= in_process.score(running, text, self._failures)

    def _over_http(self) -> None:
        with over_http.servers(self._engines, self._place, self.logs, self._failures) as running:
            measured = over_http.measure(running, self._clients, self._rounds, self._place, self._failures)
            for clients, engine, figures in measured:
                self.results["http"].setdefault(clients, {}).setdefault(engine, []).append(figures)
            resident = {name: server.process.resident_mib() for name, server in running.items()}
            self.results["server_resident_mib"] = resident

    def _installed(self, engine: Engine) -> bool:
        try:
            engine.install(self._place)
        except InstallError as error:
            self._failures[engine.name] = {"install": str(error)}
            return False
        return True

    def _load_generator(self) -> bool:
        try:
            vllm.install(self._place)
        except InstallError as error:
            self._failures["load generator"] = {"install": str(error)}
            return False
        return True

    def _save(self) -> None:
        self.results["load"]["after"] = machine.load()
        self._out.parent.mkdir(parents=True, exist_ok=True)
        self._out.write_text(json.dumps(self.results, indent=1))
