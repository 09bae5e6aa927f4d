"""Sends a server whatever its own description allows, and what it does not.

    python tests/e2e/fuzzing.py MINUTES            starts a server without a model
    python tests/e2e/fuzzing.py MINUTES URL [KEY]  for one that runs

Every answer must have a described status and shape, and come in time. Exits with 1 if one did not, or if the server is
not afterwards as it was before.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from e2e_server import FAKE, Server

KEY = "fuzz-key"
VARIABLES = FAKE | {"CORELM_OPENAI_API_KEYS": KEY, "CORELM_OPENAI_ACCESS_LOG": "false"}
"""Of a server to fuzz."""
ROUND_S = 60
LONGEST_S = 60
"""For one answer."""
MOST_ITEMS = 20
MOST_FIELDS = 3
GREEDY = {"prompt": "The quick brown fox", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
SKIPPED = (
    "positive_data_acceptance",  # which fields may be given together, the description does not say
    "missing_required_header",  # there is none
    "allow_header_conformance",  # Litestar's answers to OPTIONS only know the first handler of a path
)


class Client:
    """Asks one server, with its key."""

    def __init__(self, url, key):
        self.url = url.rstrip("/")
        self.authorization = f"Bearer {key}"
        self.model = json.loads(self.get("/v1/models"))["data"][0]["id"]
        self._greedy = self._generate()

    def get(self, path, body=None):
        headers = {"Authorization": self.authorization, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=60) as reply:
            return reply.read().decode()

    def check_unharmed(self, seconds=20.0):
        """Fail unless everything ends soon, memory is free, and the model says what it said at first."""
        deadline = time.monotonic() + seconds
        while busy := self._busy():
            assert time.monotonic() < deadline, busy
            time.sleep(0.05)
        assert self._generate() == self._greedy

    def _generate(self):
        return json.loads(self.get("/v1/completions", {"model": self.model, **GREEDY}))["choices"][0]["text"]

    def _busy(self):
        """What still runs, waits or holds memory."""
        lines = [line.rpartition(" ") for line in self.get("/metrics").splitlines() if not line.startswith("#")]
        gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return [name for name, _, value in lines if any(f":{gauge}" in name for gauge in gauges) and float(value) > 0]


def narrowed(part, model, rng):
    """A part of the description, with what leads somewhere.

    Other models are only refused. Arrays of thousands of items, in each other, take schemathesis minutes to make. Of
    what a request need not have, `rng` chooses a few fields: if all are there, some do not go together.
    """
    if isinstance(part, list):
        return [narrowed(item, model, rng) for item in part]
    if not isinstance(part, dict):
        return part
    rest = {name: narrowed(item, model, rng) for name, item in part.items() if name != "maxItems" or item <= MOST_ITEMS}
    if part.get("title", "").endswith("Body") and "model" in part.get("properties", {}):
        required = part["required"]
        others = [name for name in part["properties"] if name not in required]
        kept = {*required, *rng.sample(others, min(MOST_FIELDS, len(others)))}
        rest["properties"] = {name: item for name, item in rest["properties"].items() if name in kept}
        if "model" in kept:
            rest["properties"]["model"] = {"enum": [model] if "model" in required else [model, None]}
    return rest


def fuzz(client, seed, *options):
    """Run schemathesis. Returns its report, and whether all was well."""
    document = narrowed(json.loads(client.get("/openapi.json")), client.model, random.Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "openapi.json")
        path.write_text(json.dumps(document))
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", path, "--url", client.url, "--no-color"),
            *("--header", f"Authorization: {client.authorization}", "--request-timeout", LONGEST_S),
            *("--exclude-checks", ",".join(SKIPPED), "--warnings", "off", "--continue-on-failure"),
            *("--generation-database", "none", "--seed", seed, *options),
        ]
        done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode == 0


def fuzz_for(minutes, url, key):
    """Fuzz in rounds, each with fields of its own. Returns the exit status."""
    client = Client(url, key)
    end = time.monotonic() + float(minutes) * 60
    failed = 0
    while (rest := end - time.monotonic()) > 0:
        report, well = fuzz(client, random.randrange(2**32), "--max-time", max(5, int(min(rest, ROUND_S))))
        print("passed" if well else report, flush=True)
        failed += not well
        client.check_unharmed()
    return int(failed > 0)


def main(minutes, url=None, key="none"):
    """Fuzz a running server, or one of its own."""
    if url is not None:
        return fuzz_for(minutes, url, key)
    server = Server(**VARIABLES)
    try:
        server.wait_ready()
        return fuzz_for(minutes, server.url, KEY)
    finally:
        print(server.stop()[1])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
