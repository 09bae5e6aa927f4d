"""Tokens per second of whole requests through the library."""

import random
import time

from ceilings import decode_bytes, prompt_operations
from msgspec.structs import replace

from corelm import LLM, SamplingParams


class Work:
    """Prompts of random tokens, and how long they take."""

    def __init__(self, bench):
        self._bench = bench
        sizes = bench.sizes
        self.llm = LLM(
            sizes.model,
            executor="gpu",
            tokenizer="letters",
            dtype=sizes.dtype,
            block_size=sizes.block_size,
            max_model_len=sizes.prompt + sizes.output,
            max_num_seqs=max(sizes.requests),
            max_num_batched_tokens=sizes.batched_tokens,
            prefix_cache=False,
            progress=False,
        )

    def seconds(self, requests, tokens):
        """Of so many requests at a time that want so many tokens each."""
        draw = random.Random(requests)
        sizes = self._bench.sizes
        prompts = [
            [draw.randrange(self._bench.config.vocab_size) for _ in range(sizes.prompt)] for _ in range(requests)
        ]
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        before = time.perf_counter()
        outputs = self.llm.generate(prompts, params)
        after = time.perf_counter()
        if any(len(output.token_ids) != tokens for output in outputs):
            raise ValueError("an output is too short")
        return after - before

    def use_depth(self, depth):
        """Plan so many steps at a time."""
        engine = self.llm._engine
        engine.info = replace(engine.info, pipeline_depth=depth)


def measure(bench, record):
    """Time prompts and outputs, and tell the gain of planning ahead."""
    sizes, ceilings = bench.sizes, bench.ceilings
    work = Work(bench)
    depths = range(1, work.llm._engine.info.pipeline_depth + 1)
    for requests in sizes.requests:
        work.seconds(requests, 2)  # compiles what the sizes of these steps need
        prompt_floor = ceilings.seconds(operations=requests * prompt_operations(bench.config, sizes.prompt))
        prompts = work.seconds(requests, 1)
        record.add_time(f"{requests} prompts of {sizes.prompt}", prompts, prompt_floor)
        context = sizes.prompt + sizes.output // 2
        num_bytes = decode_bytes(bench.config, requests, context, bench.dtype.itemsize)
        floor = (sizes.output - 1) * ceilings.seconds(num_bytes=num_bytes)
        for depth in depths:
            work.use_depth(depth)
            seconds = work.seconds(requests, sizes.output)
            decoding = seconds - prompts
            rate = requests * (sizes.output - 1) / decoding
            record.add(
                f"{requests} requests, depth {depth}",
                f"{rate:.0f} tokens/s",
                share=floor / decoding,
                tokens_per_s=rate,
                best_tokens_per_s=requests * (sizes.output - 1) / floor,
                tokens_per_s_with_prompts=requests * sizes.output / seconds,
            )
    work.llm.close()
