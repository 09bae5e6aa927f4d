"""``corelm run`` as a process."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

FAKE = {"CORELM_EXECUTOR": "fake", "CORELM_TOKENIZER": "fake", "CORELM_MODEL": "fake"}
"""Variables of a server without a model."""


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
