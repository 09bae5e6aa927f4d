"""Plays the engine for the GPU executor: sequences in scattered blocks, all of which decode together."""

import itertools
import random
import time

from corelm_gpu.plugin import create
from corelm_gpu.settings import GpuSettings

from corelm import SamplingParams
from corelm.api import ExecutorContext, SequenceSlice, SequenceStart, StepPlan
from corelm.plugins import PluginHost

ROOM = 256
"""Tokens that each sequence may decode, where it may be so long."""


class Driver:
    """One loaded executor."""

    def __init__(self, model, sizes, **settings):
        self._sizes = sizes
        PluginHost.load()  # one of them knows models with random weights
        context = ExecutorContext(
            model=model,
            settings=GpuSettings(**settings),
            dtype=sizes.dtype,
            block_size=sizes.block_size,
            max_model_len=sizes.step_max_len,
            max_num_seqs=max(sizes.steps),
            max_num_batched_tokens=sizes.batched_tokens,
        )
        self.executor = create(context)
        self.info = self.executor.load(lambda fraction, what: None)
        self._blocks = list(range(self.info.num_blocks))
        self._steps = itertools.count()
        self._seq_ids = itertools.count()

    def start(self, count, **sampling):
        """Begin `count` sequences, and compute the prompt of each; the seconds that it took."""
        random.Random(1).shuffle(self._blocks)
        free, draw = iter(self._blocks), random.Random(2)
        context = self._sizes.step_context
        blocks = -(-min(context + ROOM, self.info.max_model_len) // self._sizes.block_size)
        params = SamplingParams(**{"temperature": 0.0, "seed": 0, "ignore_eos": True} | sampling)
        self._alive = [next(self._seq_ids) for _ in range(count)]
        self._position = context
        before = time.perf_counter()
        together = self._sizes.batched_tokens // context
        for first in range(0, count, together):
            some = self._alive[first : first + together]
            tokens = [[draw.randrange(self.info.vocab_size) for _ in range(context)] for _ in some]
            starts = [
                SequenceStart(seq_id=seq_id, token_ids=ids, prompt_len=context, sampling=params)
                for seq_id, ids in zip(some, tokens, strict=True)
            ]
            slices = [
                SequenceSlice(
                    seq_id=seq_id,
                    start=0,
                    num_tokens=context,
                    # Room for what is decoded later: the blocks are given at once.
                    new_block_ids=tuple(itertools.islice(free, blocks)),
                    sample=True,
                )
                for seq_id in some
            ]
            self._run(self._plan(slices, started=tuple(starts)))
        return time.perf_counter() - before

    def decode(self, steps, *, depth=1):
        """Seconds from the end of one step to the end of the next, with `depth` of them submitted at a time."""
        ends, submitted = [], []
        for _ in range(steps + depth):
            submitted.append(self.executor.submit(self._next()))
            if len(submitted) == depth:
                self._check(self.executor.collect(submitted.pop(0)))
                ends.append(time.perf_counter())
        for handle in submitted:
            self._check(self.executor.collect(handle))
        return [after - before for before, after in itertools.pairwise(ends)]

    def finish(self):
        """Forget the sequences."""
        self._run(self._plan([], released=tuple(self._alive)))

    def _next(self):
        pieces = [SequenceSlice(seq_id=i, start=self._position, num_tokens=1, sample=True) for i in self._alive]
        self._position += 1
        return self._plan(pieces)

    def _plan(self, slices, **changes):
        return StepPlan(step_id=next(self._steps), slices=tuple(slices), **changes)

    def _run(self, plan):
        self._check(self.executor.collect(self.executor.submit(plan)))

    def _check(self, result):
        if result.errors:
            raise ValueError(f"sequences failed: {result.errors}")
