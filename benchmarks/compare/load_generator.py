"""Loads a server with requests of many clients: `vllm bench serve`, a public load generator."""

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from engines import vllm
from engines.engine import Place
from process import cpu_seconds
from worker import EngineError

INPUT_TOKENS = 128
OUTPUT_TOKENS = 128
SAMPLE_S = 0.2
TIMEOUT_S = 1800


def requests_for(clients: int) -> int:
    """Requests in all: a few waves of each client."""
    return max(4, clients * 3)


@dataclass(frozen=True)
class Target:
    """A server under load."""

    port: int
    model: str


def run(place: Place, target: Target, clients: int, seed: int) -> dict[str, float]:
    """Measures of one load; prompts follow from the seed. Raises `EngineError` if a request fails."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result.json", Path(folder) / "log"
        command = [*_command(place, target, clients, seed), "--result-dir", folder, "--result-filename", result.name]
        with log.open("wb") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=sink, env={**os.environ, **vllm.variables()})
            samples = _watch(process)
        if process.returncode or not result.exists():
            raise EngineError(f"the load generator failed: {log.read_text(errors='replace').strip()[-300:]}")
        figures = json.loads(result.read_text())
    if figures["completed"] < requests_for(clients):
        raise EngineError(f"only {figures['completed']} of {requests_for(clients)} requests succeeded")
    return {
        "tokens_per_second": figures["output_throughput"],
        "first_token_ms": figures["median_ttft_ms"],
        "ms_per_token": figures["median_tpot_ms"],
        "generator_cpu_percent": 100 * _cpu_share(samples, figures["duration"]),
    }


def _command(place: Place, target: Target, clients: int, seed: int) -> list[str]:
    options = {
        "backend": "openai",
        "base-url": f"http://127.0.0.1:{target.port}",
        "endpoint": "/v1/completions",
        "model": target.model,
        "tokenizer": place.exported,
        "dataset-name": "random",
        "random-input-len": INPUT_TOKENS,
        "random-output-len": OUTPUT_TOKENS,
        "temperature": 0,
        "num-prompts": requests_for(clients),
        "max-concurrency": clients,
        "seed": seed,
    }
    pairs = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    program = vllm.environment(place) / "bin/vllm"
    return [str(program), "bench", "serve", *pairs, "--ignore-eos", "--save-result", "--disable-tqdm"]


def _watch(process: subprocess.Popen[bytes]) -> list[tuple[float, float]]:
    """Wait for its end; (time, its processor seconds so far) at regular moments."""
    samples = []
    start = time.monotonic()
    while process.poll() is None:
        try:
            samples.append((time.monotonic(), cpu_seconds(process.pid)))
        except (FileNotFoundError, ProcessLookupError):
            break
        if time.monotonic() - start > TIMEOUT_S:
            process.kill()
        time.sleep(SAMPLE_S)
    process.wait()
    return samples


def _cpu_share(samples: list[tuple[float, float]], seconds: float) -> float:
    """What share of the machine the generator took in its last `seconds`: before them it only starts."""
    end, total = samples[-1]
    before = max((used for moment, used in samples if moment <= end - seconds), default=0.0)
    return (total - before) / seconds / (os.cpu_count() or 1)
