"""A third-party policy, installed with pip into a clean environment, changes who finishes first."""

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = [".", "plugins/corelm_fcfs", "examples/shortest_first", "tests/dists/corelm_fake"]

SCRIPT = """
import asyncio, json
from corelm import SamplingParams, create_engine

async def main():
    engine = create_engine("fake", executor="fake", tokenizer="fake", max_num_seqs=1)
    await engine.start()
    finished, running = [], asyncio.Event()

    async def ask(name, count):
        stream = await engine.generate("hello", SamplingParams(max_tokens=count, ignore_eos=True))
        await anext(stream)
        running.set()
        await stream.result()
        finished.append(name)

    first = asyncio.create_task(ask("first", 200))
    await running.wait()
    await asyncio.gather(first, ask("long", 100), ask("middle", 50), ask("short", 5))
    await engine.stop()
    print(json.dumps(finished))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ["-c", str(ROOT / "constraints.txt")]
    parts = [str(ROOT / part) for part in PARTS]
    subprocess.run([python, "-m", "pip", "install", "-q", *constraints, *parts], check=True, timeout=400)
    return python


def finishing_order(python, **variables):
    slow = {"CORELM_FAKE_STEP_S": "0.003"}
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CORELM_", "PYTHONPATH"))} | slow | variables
    done = subprocess.run([python, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(500)
def test_an_installed_policy_is_selected_by_name(python):
    assert finishing_order(python, CORELM_SCHEDULER="fcfs") == ["first", "long", "middle", "short"]
    settings = {"CORELM_SHORTEST_FIRST_TOKENS_PER_SECOND_WAITED": "0"}
    assert finishing_order(python, CORELM_SCHEDULER="shortest_first", **settings) == [
        "first",
        "short",
        "middle",
        "long",
    ]
