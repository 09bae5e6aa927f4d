"""Sends a running server whatever its own description allows, and what it does not.

    corelm run --openai.port 8123
    python tests/e2e/fuzzing.py http://127.0.0.1:8123 MINUTES [KEY]

Every answer must have a described status and shape, and come in time. Exits with 1 if one did not, or if the server is
not afterwards as it was before.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

LONGEST_S = 30
"""For one answer."""
GREEDY = {"prompt": "The quick brown fox", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
SKIPPED = (
    "positive_data_acceptance",  # what fields may be given together, the description does not say
    "missing_required_header",
)


class Client:
    """Asks one server, with its key."""

    def __init__(self, url, key="none"):
        self.url = url.rstrip("/")
        self.headers = {"Authorization": f"Bearer {key}"}
        self.model = json.loads(self.get("/v1/models"))["data"][0]["id"]

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, self.headers), timeout=60) as reply:
            return reply.read().decode()

    def greedy(self):
        """The answer to a request that is always the same."""
        return json.loads(self.get("/v1/completions", {"model": self.model, **GREEDY}))["choices"][0]["text"]

    def busy(self):
        """What still runs, waits or holds memory."""
        lines = [line.rpartition(" ") for line in self.get("/metrics").splitlines() if not line.startswith("#")]
        gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return [name for name, _, value in lines if any(f":{gauge}" in name for gauge in gauges) and float(value) > 0]

    def wait_idle(self, seconds=10.0):
        """Fail unless everything ends soon."""
        deadline = time.monotonic() + seconds
        while busy := self.busy():
            assert time.monotonic() < deadline, busy
            time.sleep(0.05)


def _narrowed(document, model):
    """The description as it is for a server of `model`: other names are only refused."""
    for schema in document["components"]["schemas"].values():
        if "model" in schema.get("properties", {}) and schema["title"].endswith("Body"):
            schema["properties"]["model"] = {"const": model}
    return document


def fuzz(client, *options):
    """Run schemathesis. Returns what it reports, and whether all was well."""
    document = _narrowed(json.loads(client.get("/openapi.json")), client.model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "openapi.json")
        path.write_text(json.dumps(document))
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", path, "--url", client.url, "--no-color"),
            *("--header", f"Authorization: {client.headers['Authorization']}"),
            *("--exclude-checks", ",".join(SKIPPED), "--request-timeout", LONGEST_S, "--warnings", "off"),
            *("--generation-database", "none", "--continue-on-failure", *options),
        ]
        done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def main(url, minutes, key="none"):
    """Fuzz for that long. Returns the exit status."""
    client = Client(url, key)
    before = client.greedy()
    well, report = fuzz(client, "--max-time", int(float(minutes) * 60))
    print(report)
    client.wait_idle()
    assert client.greedy() == before
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
