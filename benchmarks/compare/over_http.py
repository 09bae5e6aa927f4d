"""Measures servers under load, in turns."""

import itertools
import socket
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import load_generator
from engines.engine import Engine, Place
from in_process import Failures, say
from load_generator import Target
from process import Process
from worker import LOAD_TIMEOUT_S, EngineError

POLL_S = 0.2


@dataclass(frozen=True)
class Server:
    """A running one."""

    process: Process
    target: Target


@contextmanager
def servers(engines: Sequence[Engine], place: Place, logs: Path, failures: Failures) -> Iterator[dict[str, Server]]:
    """The servers that start, all paused."""
    with ExitStack() as running:
        started: dict[str, Server] = {}
        for engine in engines:
            if isinstance(engine.server, str):
                failures.setdefault(engine.name, {})["http"] = engine.server
                continue
            say(f"starting the server of {engine.name}")
            port = _free_port()
            process = Process(engine.server(place, port), logs / f"{engine.name}-server.log")
            running.callback(process.stop)
            try:
                _wait_until_ready(process, port)
            except EngineError as error:
                failures.setdefault(engine.name, {})["http"] = str(error)
                process.stop()
                continue
            process.pause()
            started[engine.name] = Server(process, Target(port, engine.served_model(place)))
        yield started


def measure(
    running: Mapping[str, Server], clients: Sequence[int], rounds: int, place: Place, failures: Failures
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Number of clients, engine and measures, again and again; first comes a load that only warms up."""
    for round_number, number in itertools.product(range(rounds + 1), clients):
        if not round_number and number != clients[0]:
            continue
        say(f"round {round_number} of {rounds}{'' if round_number else ' (warming up)'}: {number} clients")
        for name, server in running.items():
            if "http" in failures.get(name, {}):
                continue
            server.process.resume()
            try:
                figures = load_generator.run(place, server.target, number, seed=1000 * round_number + number)
            except EngineError as error:
                failures.setdefault(name, {})["http"] = f"{number} clients: {error}"
                continue
            finally:
                server.process.pause()
            if round_number:
                yield str(number), name, figures


def _wait_until_ready(process: Process, port: int) -> None:
    deadline = time.monotonic() + LOAD_TIMEOUT_S
    while time.monotonic() < deadline:
        if not process.alive:
            raise EngineError(f"its server has ended: {process.last_words()}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                return
        except OSError:
            time.sleep(POLL_S)
    raise EngineError(f"its server was not ready within {LOAD_TIMEOUT_S:g} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
