"""What a step of the CPU executor takes with various settings, in one process, interleaved.

    python benchmarks/cpu_step.py [--sequences 1,8,32] [--contexts 256,1024] [--prompts 512,2048] [VARIANT ...]

A variant is a list of settings of the CPU executor, such as "weights=w8,kv=int8". Prints medians in milliseconds: of
decode steps, all sequences with contexts of the given length in blocks that lie scattered, and of steps that compute a
whole prompt; and how many times as long the other variants take as the first.
"""

import argparse
import itertools
import os
import random
import statistics
import time
from pathlib import Path

from corelm_cpu.executor import CpuExecutor
from corelm_cpu.settings import CpuSettings
from corelm_hf.resolve import resolve_model

from corelm import SamplingParams
from corelm.api import ExecutorContext, SequenceSlice, SequenceStart, StepPlan

VARIANTS = ["", "weights=bf16", "weights=bf16,kernels=torch"]
GREEDY = SamplingParams(temperature=0.0, seed=0)
BLOCK = 16


class Driver:
    """Plays the engine for one executor: plans with blocks in random order."""

    def __init__(self, model, variant, tokens):
        context = ExecutorContext(
            model=model,
            settings=CpuSettings.model_validate(dict(setting.split("=") for setting in variant.split(",") if setting)),
            max_num_seqs=64,
            max_num_batched_tokens=tokens,
            kv_cache_tokens=tokens,
        )
        self.executor = CpuExecutor(context)
        self.info = self.executor.load(lambda fraction, what: None)
        self._blocks = list(range(self.info.num_blocks))
        self._steps = itertools.count()
        self._seq_ids = itertools.count()

    def start(self, count, context):
        """Begin `count` sequences and compute `context` tokens of each."""
        random.Random(1).shuffle(self._blocks)
        free = iter(self._blocks)
        self.seq_ids = [next(self._seq_ids) for _ in range(count)]
        draw = random.Random(2)
        for seq_id in self.seq_ids:
            ids = [draw.randrange(1000, 40000) for _ in range(context)]
            # Room for what is decoded later: the blocks are given at once.
            blocks = tuple(itertools.islice(free, -(-(context + 64) // BLOCK)))
            start = SequenceStart(seq_id=seq_id, token_ids=ids, prompt_len=context, sampling=GREEDY)
            piece = SequenceSlice(seq_id=seq_id, start=0, num_tokens=context, new_block_ids=blocks, sample=True)
            self.step(piece, started=(start,))
        self.position = context

    def decode(self):
        """One decode step of all sequences."""
        pieces = [SequenceSlice(seq_id=i, start=self.position, num_tokens=1, sample=True) for i in self.seq_ids]
        self.position += 1
        return self.step(*pieces)

    def finish(self):
        """Forget the sequences."""
        self.step(released=tuple(self.seq_ids))

    def step(self, *slices, **plan):
        """Run a step; milliseconds."""
        before = time.perf_counter()
        self.executor.execute(StepPlan(step_id=next(self._steps), slices=slices, **plan))
        return (time.perf_counter() - before) * 1000


def interleaved(drivers, action, repeats):
    """Medians of an action for each driver, one after the other in turns."""
    times = [[action(driver) for driver in drivers] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def decode_times(drivers, count, context, steps):
    for driver in drivers:
        driver.start(count, context)
        driver.decode()
    medians = interleaved(drivers, Driver.decode, steps)
    for driver in drivers:
        driver.finish()
    return medians


def prompt_times(drivers, length, repeats):
    def compute(driver):
        before = time.perf_counter()
        driver.start(1, length)
        took = (time.perf_counter() - before) * 1000
        driver.finish()
        return took

    return interleaved(drivers, compute, repeats)


def report(what, medians):
    ratios = "".join(f" {median / medians[0]:.2f} |" for median in medians[1:])
    print(f"| {what} |{''.join(f' {median:.1f} |' for median in medians)}{ratios}", flush=True)


def main():
    numbers = lambda text: [int(number) for number in text.split(",") if number]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", default=VARIANTS)
    parser.add_argument("--sequences", type=numbers, default=[1, 8, 32])
    parser.add_argument("--contexts", type=numbers, default=[256, 1024])
    parser.add_argument("--prompts", type=numbers, default=[512, 2048])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    model = resolve_model(options.model)
    tokens = max(options.sequences) * (max(options.contexts) + 80) + max(options.prompts, default=0) + 80
    drivers = [Driver(model, variant, tokens) for variant in options.variants]
    names = [variant or "default" for variant in options.variants]
    print(f"load {os.getloadavg()[0]:.1f}; {Path(model.path).name}")
    for name, driver in zip(names, drivers, strict=True):
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in driver.info.details.items())}")
    print(f"| | {' | '.join([*names, *(f'{name} / {names[0]}' for name in names[1:])])} |")
    print(f"|---|{'--:|' * (2 * len(names) - 1)}")
    for context, count in itertools.product(options.contexts, options.sequences):
        report(f"{count} x {context}", decode_times(drivers, count, context, options.steps))
    for length in options.prompts:
        report(f"prompt {length}", prompt_times(drivers, length, 5))


if __name__ == "__main__":
    main()
