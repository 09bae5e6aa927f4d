"""What the core costs per decode step: an executor that answers at once, real text, one consumer per sequence.

    python benchmarks/engine_overhead.py [--sequences 64,256,1024] [--steps 300] [--profile] [--busy-ms 5]

Prints medians over the steps, in milliseconds: scheduling, entering results and decoding them to text, and the whole
step from plan to woken consumers, with the hops between threads. With --busy-ms the executor takes that long for a
step, and the whole step is measured at pipeline depth 1 and 2: what of the core's work hides behind the executor's.
"""

import argparse
import asyncio
import cProfile
import pstats
import statistics
import threading
import time

from corelm_fcfs import FCFS

from corelm import SamplingParams
from corelm.api import Executor, ExecutorInfo, StepResult, TokenizerContext
from corelm.engine.async_engine import AsyncEngine
from corelm.engine.engine import Engine
from corelm.engine.intake import Intake
from corelm.engine.prompts import PromptReader
from corelm.plugins import PluginHost
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.scheduler import Scheduler

TEXT = "The lighthouse keeper counted the steps aloud; there were two hundred and twelve of them. Café, naïve, 北京! "
PROMPT = 128


class InstantExecutor(Executor):
    """Answers with the tokens of a text, each sequence at its own place in it: at once, or when a device of its own
    would be done with the steps so far."""

    def __init__(self, tokens, num_blocks, busy_s, depth):
        self._tokens = tokens
        self._num_blocks = num_blocks
        self._busy_s = busy_s
        self._depth = depth
        self._done_at = 0.0
        self.go = threading.Event()

    def load(self, progress):
        return ExecutorInfo(
            num_blocks=self._num_blocks,
            block_size=16,
            vocab_size=10**6,
            max_model_len=10**5,
            dtype="none",
            device="none",
            capabilities=frozenset({"prefix_cache"}),
            pipeline_depth=self._depth,
        )

    def submit(self, plan):
        self.go.wait()
        self._done_at = max(self._done_at, time.perf_counter()) + self._busy_s
        return plan, self._done_at

    def collect(self, handle):
        plan, done_at = handle
        if self._busy_s:
            time.sleep(max(done_at - time.perf_counter(), 0.0))
        tokens, size = self._tokens, len(self._tokens)
        answers = [[tokens[(item.seq_id + item.start) % size]] if item.sample else [] for item in plan.slices]
        return StepResult(step_id=plan.step_id, token_ids=answers)


class Timed:
    """Records how long each call of a method takes."""

    def __init__(self, owner, name):
        self.seconds = []
        method = getattr(owner, name)

        def timed(*arguments):
            before = time.perf_counter()
            result = method(*arguments)
            self.seconds.append(time.perf_counter() - before)
            return result

        setattr(owner, name, timed)

    def median_ms(self, last):
        return statistics.median(self.seconds[-last:]) * 1e3


def build(tokenizer, tokens, sequences, steps, busy_s=0.0, depth=1, observing=None):
    executor = InstantExecutor(tokens, sequences * (PROMPT + steps + 32) // 16, busy_s, depth)
    info = executor.load(lambda fraction, text: None)
    memory = KVMemory(num_blocks=info.num_blocks, block_size=info.block_size, prefix_cache=True)
    scheduler = Scheduler(
        PolicyGuard(FCFS(), clock=time.monotonic),
        memory,
        max_num_seqs=sequences,
        max_num_batched_tokens=max(4096, sequences),
    )
    prompts = PromptReader(
        tokenizer,
        max_model_len=info.max_model_len,
        kv_tokens=info.num_blocks * info.block_size,
        vocab_size=info.vocab_size,
    )
    intake = Intake(tokenizer, prompts, capabilities=info.capabilities)
    core = Engine(
        model_name="bench", executor=executor, info=info, scheduler=scheduler, intake=intake, observing=observing
    )
    return core, scheduler, executor


async def measure(tokenizer, tokens, sequences, steps, busy_s=0.0, depth=1):
    core, scheduler, executor = build(tokenizer, tokens, sequences, steps, busy_s, depth)
    scheduling, processing = Timed(scheduler, "schedule"), Timed(core, "_process")
    asking = [Timed(scheduler.policy, name) for name in ("arrival_key", "key", "order", "victim", "swap", "served")]
    engine = AsyncEngine(lambda progress: core)
    await engine.start()
    params = SamplingParams(temperature=0, max_tokens=steps, ignore_eos=True)
    ticks = []

    async def consume(index, stream):
        async for _ in stream:
            if index == 0:
                ticks.append(time.perf_counter())  # noqa: PERF401 - the moment matters

    prompts = [[(i * 31 + j) % 40000 for j in range(PROMPT)] for i in range(sequences)]
    streams = [await engine.generate(prompt, params) for prompt in prompts]
    consumers = asyncio.gather(*(consume(*pair) for pair in enumerate(streams)))
    await asyncio.sleep(0)
    executor.go.set()
    await consumers
    await engine.stop()
    last = steps // 2
    whole = statistics.median(b - a for a, b in zip(ticks[-last:], ticks[-last + 1 :], strict=False)) * 1e3
    print(
        f"{sequences:5} sequences, depth {depth}: schedule {scheduling.median_ms(last):6.2f}"
        f"  results {processing.median_ms(last):6.2f}  whole step {whole:6.2f} ms"
        f"  ({whole / sequences * 1e3:.1f} µs a token)"
        f"  asking the policy {sum(sum(one.seconds) for one in asking) / sum(scheduling.seconds):.1%} of scheduling"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", default="64,256,1024")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--busy-ms", type=float, default=0.0)
    parser.add_argument("--profile", action="store_true", help="print where one step's time goes, in one thread")
    options = parser.parse_args()
    host = PluginHost.load()
    context = TokenizerContext(model=host.resolve_model("smollm2"), settings=None)
    tokenizer = host.create(host.select("tokenizer", "hf"), context)
    tokens = tokenizer.encode(TEXT)
    for sequences in map(int, options.sequences.split(",")):
        if options.profile:
            profile(tokenizer, tokens, sequences, options.steps)
        elif options.busy_ms:
            for depth in (1, 2):
                asyncio.run(measure(tokenizer, tokens, sequences, options.steps, options.busy_ms / 1e3, depth))
        else:
            asyncio.run(measure(tokenizer, tokens, sequences, options.steps))


def profile(tokenizer, tokens, sequences, steps):
    core, _, executor = build(tokenizer, tokens, sequences, steps)
    executor.go.set()
    params = SamplingParams(temperature=0, max_tokens=steps, ignore_eos=True)
    for i in range(sequences):
        prompt = [(i * 31 + j) % 40000 for j in range(PROMPT)]
        core.add(core.intake.prepare(prompt, params, request_id=str(i), arrival=float(i)))
    profiler = cProfile.Profile()
    profiler.enable()
    while core.has_work:
        core.step()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
