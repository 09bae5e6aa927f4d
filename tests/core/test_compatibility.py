"""Plugins of the past, really installed, against the core of today."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corelm.api import API_VERSION

DISTS = Path(__file__).parents[1] / "dists"
OLD = ("old_policy", "old_tokenizer")

SCRIPT = """
import asyncio, json
from corelm import SamplingParams, create_engine
from corelm.api import RequestOptions

async def main():
    engine = create_engine("fake", executor="fake", tokenizer="fake", max_num_seqs=1, kv_cache_tokens=512)
    await engine.start()
    finished, running = [], asyncio.Event()

    async def ask(name, count, priority=0):
        params = SamplingParams(max_tokens=count, ignore_eos=True)
        stream = await engine.generate("hello", params, options=RequestOptions(priority=priority))
        await anext(stream)
        running.set()
        await stream.results()
        finished.append(name)

    first = asyncio.create_task(ask("first", 50))
    await running.wait()
    await asyncio.gather(first, ask("early", 5), ask("late", 5), ask("urgent", 5, -1))
    await engine.stop()
    print(json.dumps(finished))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python with the old plugins on its path, as pip installed them."""
    site = tmp_path_factory.mktemp("site")
    parts = [str(DISTS / name) for name in OLD]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", site, *parts], check=True, timeout=300)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}

    def call(*words, **variables):
        environment = {**clean, "PYTHONPATH": str(site), "PYTHONWARNINGS": "error", **variables}
        command = [sys.executable, *words]
        return subprocess.run(
            command, env=environment, cwd=site, capture_output=True, text=True, timeout=60, check=False
        )

    return call


@pytest.mark.timeout(400)
def test_a_policy_written_for_the_first_version_still_decides(run):
    settings = {"CORELM_SCHEDULER": "old_policy", "CORELM_OLD_POLICY_URGENT_BELOW": "0", "CORELM_FAKE_STEP_S": "0.003"}
    done = run("-c", SCRIPT, **settings, CORELM_BLOCK_PLUGINS="old_tokenizer")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["first", "urgent", "late", "early"]
    assert "Warning" not in done.stderr


@pytest.mark.timeout(400)
def test_a_plugin_that_promised_less_is_refused_with_both_versions(run):
    done = run("-m", "corelm", "plugins", "--json", CORELM_PLUGINS="old_policy,old_tokenizer")
    assert done.returncode == 0, done.stderr
    listed = {plugin["name"]: plugin for plugin in json.loads(done.stdout)}
    assert listed["old_policy"]["provides"] == {"scheduler:old_policy": "last come, first served"}
    refusal = f"it needs corelm API >= 0.1 and < 0.2, this is {'.'.join(map(str, API_VERSION))}"
    assert listed["old_tokenizer"]["failure"] == refusal
    assert f"plugin 'old_tokenizer' (corelm-old-tokenizer 0.1.0) is not loaded: {refusal}" in done.stderr


@pytest.mark.timeout(400)
def test_choosing_what_the_refused_plugin_has_ends_the_start(run):
    done = run("-m", "corelm", "run", "--model", "fake", "--executor", "fake", "--tokenizer", "old_tokenizer")
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("corelm: error: no tokenizer named 'old_tokenizer'")
    assert "plugin 'old_tokenizer' (corelm-old-tokenizer 0.1.0) is not loaded: it needs corelm API >= 0.1" in last
