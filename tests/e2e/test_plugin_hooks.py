"""Plugins of plugins, installed with pip: routes for the frontend, model architectures for the executor."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from e2e_server import FAKE

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMPT = [72, 101, 108, 108, 111]

SCRIPT = """
import sys
from corelm import LLM, SamplingParams
with LLM(sys.argv[1], executor="cpu", tokenizer="fake", dtype="float32", kv_cache_tokens=256) as llm:
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    print(llm._engine.info.details["kernels"])
    print(list(llm.generate([[int(token) for token in sys.argv[2:]]], params)[0].token_ids))
"""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the two examples are installed."""
    site = tmp_path_factory.mktemp("site")
    parts = [str(EXAMPLES / "extra_route"), str(EXAMPLES / "more_models")]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", site, *parts], check=True, timeout=300)
    return site


def test_routes_of_a_plugin_are_served_when_they_are_named(site, serve):
    server = serve("--openai.routes", "stats", PYTHONPATH=str(site), **FAKE)
    server.wait_ready()
    with urllib.request.urlopen(f"{server.url}/stats", timeout=10) as response:
        assert json.load(response)["waiting"] == 0
    code, output = server.stop()
    assert code == 0, output


def test_a_route_that_nobody_has_ends_the_start(site, serve):
    server = serve("--openai.routes", "stats,metrics", PYTHONPATH=str(site), **FAKE)
    output, _ = server.process.communicate(timeout=60)
    assert server.process.returncode != 0
    assert "nothing named 'metrics' is registered with corelm_openai_register_routes; available: stats" in output


def test_a_model_of_an_architecture_that_a_plugin_brings(site, tmp_path):
    import torch
    import transformers

    torch.manual_seed(3)
    config = transformers.Olmo2Config(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        pad_token_id=0,
    )
    reference = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
        expected = reference.generate(
            torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    reference.save_pretrained(tmp_path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *map(str, PROMPT)]

    def run(**variables):
        return subprocess.run(command, env=clean | variables, capture_output=True, text=True, timeout=120, check=False)

    for whose, blocked in (("its plugin's", {}), ("transformers'", {"CORELM_BLOCK_PLUGINS": "more_models"})):
        done = run(PYTHONPATH=str(site), **blocked)
        assert done.returncode == 0, done.stderr
        kernels, tokens = done.stdout.splitlines()[-2:]
        assert whose in kernels
        assert json.loads(tokens) == expected[0, len(PROMPT) :].tolist()
