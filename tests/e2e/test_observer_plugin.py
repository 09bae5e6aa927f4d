"""A third-party observer, installed with pip into a clean environment, writes down what the engine did."""

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = [".", "plugins/corelm_fcfs", "examples/request_log", "tests/dists/corelm_fake"]

SCRIPT = """
import asyncio
from corelm import SamplingParams, create_engine

async def main():
    engine = create_engine("fake", executor="fake", tokenizer="fake", max_num_seqs=1)
    await engine.start()

    async def ask(name, count):
        params = SamplingParams(max_tokens=count, ignore_eos=True)
        return await engine.generate("hello", params, request_id=name)

    first, second, third = await ask("first", 3), await ask("second", 5), await ask("third", 1000)
    await first.result()
    await second.result()
    await anext(third)
    third.abort()
    await (await ask("last", 1)).result()
    await engine.stop()

asyncio.run(main())
"""

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ["-c", str(ROOT / "constraints.txt")]
    parts = [str(ROOT / part) for part in PARTS]
    subprocess.run([python, "-m", "pip", "install", "-q", *constraints, *parts], check=True, timeout=400)
    return python


def run(python, folder, *arguments, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CORELM_", "PYTHONPATH"))} | variables
    return subprocess.run(
        [python, *arguments], env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_installed_observer_is_listed(python, tmp_path):
    done = run(python, tmp_path, "-m", "corelm", "plugins", "--json")
    assert done.returncode == 0, done.stderr
    [plugin] = [plugin for plugin in json.loads(done.stdout) if plugin["name"] == "request_log"]
    assert plugin["provides"] == {"observer:request_log": "a line of JSON for each request that ended"}


def test_an_observer_that_was_selected_is_told_of_every_request(python, tmp_path):
    log = {"CORELM_OBSERVERS": "request_log", "CORELM_REQUEST_LOG_PATH": "requests.jsonl"}
    done = run(python, tmp_path, "-c", SCRIPT, CORELM_FAKE_STEP_S="0.005", **log)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    ended = [(line["request_id"], line["reason"], line["prompt_tokens"]) for line in lines]
    assert ended == [("first", "length", 5), ("second", "length", 5), ("third", "abort", 5), ("last", "length", 5)]
    assert [line["completion_tokens"] for line in lines if line["reason"] == "length"] == [3, 5, 1]
    for line in lines:
        parts = [line[f"{part}_s"] for part in ("waiting", "prefill", "decode", "preempted")]
        assert sum(parts) == pytest.approx(line["total_s"], abs=1e-5)
    # One request runs at a time: the second waits for the three steps of the first.
    assert lines[1]["waiting_s"] > 0.01
    assert lines[1]["decode_s"] > 0.015


def test_installing_an_observer_does_not_activate_it(python, tmp_path):
    done = run(python, tmp_path, "-c", SCRIPT, CORELM_REQUEST_LOG_PATH="requests.jsonl")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "requests.jsonl").exists()


def test_a_log_that_cannot_be_written_ends_the_start_with_one_line(python, tmp_path):
    log = {"CORELM_OBSERVERS": "request_log", "CORELM_REQUEST_LOG_PATH": "missing/requests.jsonl"}
    done = run(python, tmp_path, "-c", SCRIPT, **log)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith("request_log.path: cannot write missing/requests.jsonl: No such file or directory")


def test_the_synchronous_library_has_observers_too(python, tmp_path):
    log = {"CORELM_OBSERVERS": "request_log", "CORELM_REQUEST_LOG_PATH": "requests.jsonl"}
    script = """
from corelm import LLM, SamplingParams
with LLM("fake", executor="fake", tokenizer="fake") as llm:
    llm.generate(["one", "two"], SamplingParams(max_tokens=4, ignore_eos=True))
"""
    done = run(python, tmp_path, "-c", script, **log)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [(line["request_id"], line["completion_tokens"]) for line in lines] == [("0", 4), ("1", 4)]
