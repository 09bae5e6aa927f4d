"""Many streams at once, for long, against a real server: is every one right, and does the server stay as it was?

    python benchmarks/soak.py [--streams 500] [--minutes 5] [--url http://127.0.0.1:8000]

Without --url it starts `corelm run` with the fake executor (`tests/dists/corelm_fake`), whose every text is a function
of the prompt: so a text that is lost, cut, doubled or somebody else's is noticed. One client in twenty leaves in the
middle. At the end nothing may run, wait or hold a block, every request must be counted, and memory must be what it was
after a third of the time. Exits 1 otherwise.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from urllib.parse import urlsplit

from corelm.testing import fake_continuation

MODEL = "fake"
FLAGS = "--executor fake --tokenizer fake --model fake --max-num-batched-tokens 4096 --kv-cache-tokens 262144"
LEAVES = 0.05
CHECK = {"prompt": "the same every time", "max_tokens": 48}
MAX_GROWTH = 1.1
"""Of memory, from a third of the time to the end."""


class Client:
    """Asks over connections of its own."""

    def __init__(self, url):
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port

    async def get(self, path):
        """A page as text."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\r\n".encode())
            return (await reader.read()).partition(b"\r\n\r\n")[2].decode()
        finally:
            writer.close()

    async def metrics(self):
        """Values by name and labels, as they are written."""
        lines = (await self.get("/metrics")).splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    async def text(self, prompt, max_tokens, leave_after=None):
        """The streamed text, checked for its form; None if the client left after so many events."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "stream": True}
            data = json.dumps(body | {"temperature": 0, "ignore_eos": True}).encode()
            head = f"POST /v1/completions HTTP/1.0\r\nhost: soak\r\ncontent-length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            status = await reader.readline()
            assert b" 200 " in status, status + await reader.read()
            await reader.readuntil(b"\r\n\r\n")
            return await self._events(reader, leave_after)
        finally:
            writer.close()

    async def _events(self, reader, leave_after):
        pieces, ids, ended = [], set(), False
        while line := await reader.readline():
            assert line.startswith(b"data: "), line
            assert await reader.readline() == b"\n"
            if line == b"data: [DONE]\n":
                assert ended, "a stream without a finish reason"
                assert await reader.read() == b""
                assert len(ids) == 1, "events of different replies on one connection"
                return "".join(pieces)
            event = json.loads(line[6:])
            ids.add(event["id"])
            [choice] = event["choices"]
            assert not ended, "an event after the last"
            ended = choice["finish_reason"] is not None
            pieces.append(choice["text"])
            if leave_after is not None and len(pieces) >= leave_after:
                return None
        raise AssertionError("a stream ended without [DONE]")


class Soak:
    """Keeps so many streams going for so many seconds; everything that was wrong is in `problems`."""

    def __init__(self, url, streams, seconds):
        self.client = Client(url)
        self.streams = streams
        self.seconds = seconds
        self.done = Counter()
        self.problems = []
        self.memory = []
        """Bytes that the server held: after a third of the time, and at the end."""

    async def run(self):
        """Soak, and look at what is left."""
        before = await self.client.metrics()
        first = await self.client.text(**CHECK)
        await self._soak()
        if await self.client.text(**CHECK) != first or first != expected(**CHECK):
            self.problems.append("the fixed request has another answer than before")
        self.done["complete"] += 2
        await self._check_rest(before)
        early, late = self.memory
        if late > early * MAX_GROWTH:
            self.problems.append(f"memory grew from {early / 2**20:.0f} to {late / 2**20:.0f} MiB")

    async def _soak(self):
        deadline = time.monotonic() + self.seconds
        workers = [asyncio.create_task(self._work(number, deadline)) for number in range(self.streams)]
        await asyncio.sleep(self.seconds / 3)
        self.memory.append((await self.client.metrics())["process_resident_memory_bytes"])
        await asyncio.gather(*workers)
        self.memory.append((await self.client.metrics())["process_resident_memory_bytes"])

    async def _work(self, number, deadline):
        draw, count = random.Random(number), 0
        while time.monotonic() < deadline:
            count += 1
            prompt, max_tokens = f"client {number}, request {count}" + "!" * draw.randrange(20), draw.randint(8, 64)
            leave_after = draw.randrange(1, 8) if draw.random() < LEAVES else None
            try:
                text = await self.client.text(prompt, max_tokens, leave_after)
            except (AssertionError, OSError, EOFError) as error:
                self.problems.append(f"{prompt!r}: {type(error).__name__}: {error}")
                continue
            self.done["left" if text is None else "complete"] += 1
            if text is not None and text != expected(prompt, max_tokens):
                self.problems.append(f"{prompt!r}: the text is wrong: {text!r}")

    async def _check_rest(self, before):
        """Nothing may be left over; waits a moment for those that left."""
        for _ in range(100):
            now = await self.client.metrics()
            rest = {name: value for name, value in now.items() if re.match(r"corelm:(num_requests_|kv_cache)", name)}
            if not any(rest.values()):
                break
            await asyncio.sleep(0.05)
        else:
            self.problems.append(f"something is left over: {rest}")
        ended = sum(now[name] - before[name] for name in now if name.startswith("corelm:request_success_total"))
        if ended != self.done.total() + len(self.problems):
            self.problems.append(f"{self.done.total()} requests were made, {ended:.0f} counted")


def expected(prompt, max_tokens):
    """What the fake executor says."""
    return bytes(fake_continuation(list(prompt.encode()), max_tokens)).decode()


@contextmanager
def server(streams):
    """A server on a free port; gives its URL."""
    command = [sys.executable, "-m", "corelm", "run", *FLAGS.split(), "--max-num-seqs", str(streams)]
    command += ["--max-waiting", str(2 * streams), "--openai.port", "0", "--openai.access-log", "false"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        try:
            yield address_in(log, process)
        finally:
            process.terminate()
            process.wait()


def address_in(log, process):
    """Where the server listens, once its log says so."""
    while True:
        log.seek(0)
        text = log.read()
        if found := re.search(r"listening on (http://\S+)/v1", text):
            return found[1]
        if process.poll() is not None:
            raise SystemExit(text)
        time.sleep(0.05)


async def soak(url, streams, seconds):
    """A soak that has ended."""
    one = Soak(url, streams, seconds)
    while "ready" not in await one.client.get("/health"):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)
    await one.run()
    return one


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--url", help="of a server that runs the fake executor")
    options = parser.parse_args()
    seconds = options.minutes * 60
    if options.url:
        one = asyncio.run(soak(options.url, options.streams, seconds))
    else:
        with server(options.streams) as url:
            one = asyncio.run(soak(url, options.streams, seconds))
    early, late = (size / 2**20 for size in one.memory)
    print(f"{options.streams} streams, {seconds:.0f} s: {one.done['complete']} complete, {one.done['left']} left")
    print(f"memory of the server: {early:.1f} MiB after a third of the time, {late:.1f} MiB at the end")
    for problem in one.problems[:20]:
        print(problem)
    print(f"{len(one.problems)} problems")
    return int(bool(one.problems))


if __name__ == "__main__":
    sys.exit(main())
