"""What HTTP costs: the same requests in the engine's own process and over HTTP, in turns, on one server.

    python benchmarks/http_overhead.py [--streams 64] [--tokens 256] [--rounds 5] [--busy-ms 0,10] [--real]

The server runs in a process of its own, the clients in this one. For each kind of executor it prints, as medians over
the rounds, the tokens per second of both ways and their ratio, and the CPU time of the server's process for a token:
the difference of both ways is what encoding and sending it costs. With --busy-ms 0 the executor answers at once, else
a step takes that long without using the CPU; --real computes the demo model.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from typing import NamedTuple

import engine_overhead
from corelm_openai.frontend import OpenAIFrontend
from corelm_openai.settings import OpenAISettings
from litestar import Request, post

from corelm import SamplingParams, create_engine
from corelm.api import TokenizerContext
from corelm.engine.async_engine import AsyncEngine
from corelm.engine.observing import Observing
from corelm.plugins import PluginHost

PROMPT = "Tell me of lighthouse number {}, and of the sea around it."


class Figures(NamedTuple):
    """One round."""

    tokens: int
    seconds: float
    cpu_s: float

    @property
    def rate(self):
        return self.tokens / self.seconds

    @property
    def cpu_us(self):
        return self.cpu_s / self.tokens * 1e6


def load_engine(options, busy_ms):
    if busy_ms is None:
        return create_engine("smollm2", max_num_seqs=options.streams, max_num_batched_tokens=4096, stats_interval_s=0)
    host = PluginHost.load()
    context = TokenizerContext(model=host.resolve_model("smollm2"), settings=None)
    tokenizer = host.create(host.select("tokenizer", "hf"), context)
    observing = Observing()
    tokens = tokenizer.encode(engine_overhead.TEXT)
    core, _, executor = engine_overhead.build(
        tokenizer, tokens, options.streams, options.tokens, busy_ms / 1e3, observing=observing
    )
    executor.go.set()
    return AsyncEngine(lambda progress: core, observing=observing)


def routes(engine):
    """What the clients ask the server besides what users ask."""

    @post("/cpu")
    async def cpu() -> list[float]:
        return [time.process_time()]

    @post("/in_process")
    async def in_process(request: Request) -> list[float]:
        work = await request.json()
        params = SamplingParams(temperature=0, max_tokens=work["tokens"], ignore_eos=True)

        async def consume(number):
            return [output async for output in await engine.generate(PROMPT.format(number), params)]

        begun, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(consume, range(work["streams"])))
        return [time.perf_counter() - begun, time.process_time() - used]

    return [cpu, in_process]


def serve(options, busy_ms, pipe):
    """The server's process, until the pipe is closed."""

    async def run():
        engine, stop = load_engine(options, busy_ms), asyncio.Event()
        frontend = OpenAIFrontend(OpenAISettings(port=0), lambda context: [routes(context.engine)])
        serving = asyncio.create_task(frontend.serve(engine, stop))
        await engine.start()
        while frontend.url is None:  # noqa: ASYNC110 - setting an attribute wakes nobody
            await asyncio.sleep(0.01)
        pipe.send((frontend.url, engine.model.names[0]))
        await asyncio.to_thread(pipe.poll, None)
        stop.set()
        await serving
        await engine.stop()

    loop_factory = __import__("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


async def ask(port, path, body):
    """The reply to a POST, as it comes; the number of its events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    writer.write(b"POST %b HTTP/1.1\r\nhost: b\r\nconnection: close\r\n" % path.encode())
    writer.write(b"content-length: %d\r\n\r\n%b" % (len(data), data))
    received = []
    while piece := await reader.read(2**16):
        received.append(piece)
    writer.close()
    head, _, rest = b"".join(received).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 20"), head + rest
    return rest


async def over_http(port, model, options):
    body = {"model": model, "stream": True, "max_tokens": options.tokens, "ignore_eos": True, "temperature": 0}
    used = json.loads(await ask(port, "/cpu", None))[0]
    begun = time.perf_counter()
    replies = await asyncio.gather(
        *(ask(port, "/v1/completions", body | {"prompt": PROMPT.format(n)}) for n in range(options.streams))
    )
    seconds = time.perf_counter() - begun
    assert all(reply.count(b"[DONE]") == 1 for reply in replies)
    cpu_s = json.loads(await ask(port, "/cpu", None))[0] - used
    chunks = sum(reply.count(b"data: {") for reply in replies)
    return Figures(options.streams * options.tokens, seconds, cpu_s), chunks


async def in_process(port, options):
    seconds, cpu_s = json.loads(await ask(port, "/in_process", {"streams": options.streams, "tokens": options.tokens}))
    return Figures(options.streams * options.tokens, seconds, cpu_s)


async def compare(port, model, options):
    """(in process, over HTTP) for each round, and tokens for each event."""
    pairs, chunks = [], 0
    for number in range(options.rounds + 1):
        inside = await in_process(port, options)
        outside, chunks = await over_http(port, model, options)
        if number:  # the first round warms up
            pairs.append((inside, outside))
    return pairs, options.streams * options.tokens / chunks


def measure(options, busy_ms):
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(options, busy_ms, theirs))
    process.start()
    url, model = ours.recv()
    port = int(url.removesuffix("/v1").rpartition(":")[2])
    try:
        pairs, merged = asyncio.run(compare(port, model, options))
    finally:
        ours.send(None)
        process.join()
    inside, outside = zip(*pairs, strict=True)
    ratio = statistics.median(there.seconds / here.seconds for here, there in pairs)
    cpu = [statistics.median(one.cpu_us for one in ways) for ways in (inside, outside)]
    rates = [statistics.median(one.rate for one in ways) for ways in (inside, outside)]
    name = "demo model" if busy_ms is None else f"{busy_ms:g} ms steps" if busy_ms else "instant"
    print(
        f"{name:>12}: {rates[0]:8.0f} tokens/s in process  {rates[1]:8.0f} over HTTP  HTTP adds {ratio - 1:+7.1%}"
        f"   CPU {cpu[0]:5.1f} -> {cpu[1]:5.1f} µs a token: {cpu[1] - cpu[0]:5.1f} for HTTP,"
        f" at {merged:.1f} tokens an event",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy-ms", default="0,10")
    parser.add_argument("--real", action="store_true", help="compute the demo model as well")
    options = parser.parse_args()
    print(f"{options.streams} streams of {options.tokens} tokens, {options.rounds} rounds")
    for busy_ms in map(float, options.busy_ms.split(",")):
        measure(options, busy_ms)
    if options.real:
        measure(options, None)


if __name__ == "__main__":
    main()
