"""Random lives of engines on the GPU executor: two steps under way, too little memory, and what is asked of it mixed.

Every request ends with what the CPU executor makes of it alone, whoever its neighbours are, however often it loses its
blocks, and into however many parts its steps fall.
"""

import json
import random
from functools import cache

import numpy as np
import pytest
import reference_kernels
import torch
from corelm_cpu.plugin import create as create_cpu
from corelm_cpu.settings import CpuSettings
from corelm_gpu.runner import Runner
from corelm_gpu.steps import NO_MEMORY
from gpu_kernels import DEVICE
from gpu_tiny import make_executor, save_tiny_llama
from helpers import make_engine

from corelm.api import BeamSearch, ExecutorContext, SamplingParams, SchedulingPolicy, StructuredOutput
from corelm.engine.streams import merge
from corelm.testing import FakeTokenizer

BLOCK_SIZE = 4
BUDGET = 24
MAX_NUM_SEQS = 6
TEXTS = json.dumps(["alpha one", "alpha two", "beta or not", "gamma"])
KINDS = ("greedy", "drawn", "penalised", "scored", "beam", "grammar", "words", "embedding")
LIKELY = {"logit_bias": {97: 0.6, 98: 0.5, 90: 3.0}}
"""Outputs repeat themselves, so that it matters what came before."""
DOOM = 200
"""There is not enough memory for a prompt that begins with this token, if memory is short."""
BEGINNING = [(token * 29 + 11) % 128 for token in range(14)]


class Whimsical(SchedulingPolicy):
    """Orders, preempts and swaps at random."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def order(self, waiting, now):
        names = [request.request_id for request in waiting]
        self.random.shuffle(names)
        return names[: self.random.randint(1, len(names))]

    def victim(self, running, now):
        return self.random.choice(running).request_id

    def swap(self, request):
        return self.random.random() < 0.7


def params_of(kind, count, size):
    values = {
        "greedy": {"temperature": 0.0},
        "doomed": {"temperature": 0.0},
        "drawn": {"n": size, "seed": 3, "top_k": 5},
        "penalised": LIKELY | {"temperature": 0.0, "repetition_penalty": 1.1, "frequency_penalty": 0.2},
        "scored": {"temperature": 0.0, "prompt_logprobs": 1, "logprobs": 2},
        "beam": {"beam": BeamSearch(width=size), "n": size},
        "grammar": {"temperature": 0.0, "structured_output": StructuredOutput(kind="choice", source=TEXTS)},
        "words": LIKELY | {"n": size, "seed": 5, "top_k": 3, "bad_words": ("ab", "Z", "bba")},
    }[kind]
    return SamplingParams(max_tokens=count, ignore_eos=kind != "grammar", **values)


def prepare(engine, kind, prompt, count, size, name):
    options = {"request_id": name, "arrival": float(name)}
    if kind == "embedding":
        return engine.intake.prepare_embedding(list(prompt), None, **options)
    params = params_of(kind, count, size)
    wanted = params.structured_output
    grammar = None if wanted is None else engine.intake.grammars().compile(wanted)
    return engine.intake.prepare(list(prompt), params, grammar=grammar, **options)


def numbers_of(entries):
    return None if entries is None else [entry and entry.logprob for entry in entries]


def answer(outputs):
    """What of the outputs of a request depends on it alone: exact values by choice, and numbers that may be rounded."""
    merged = {index: merge(parts) for index, parts in outputs.items()}
    exact = {index: (each.token_ids, each.text, each.finish_reason) for index, each in merged.items()}
    rounded = [numbers_of(each.logprobs) for each in merged.values()]
    rounded += [numbers_of(each.prompt_logprobs) for each in merged.values()]
    rounded += [each.embedding.vector for parts in outputs.values() for each in parts if hasattr(each, "embedding")]
    return exact, [number for numbers in rounded for number in numbers or () if number is not None]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """With the vocabulary of the fake tokenizer."""
    return save_tiny_llama(tmp_path_factory.mktemp("bytes_llama"), vocab_size=FakeTokenizer.vocab_size)


@pytest.fixture(scope="module")
def alone(model):
    """Answers of the CPU executor to single requests."""
    context = ExecutorContext(
        model=model,
        settings=CpuSettings(threads=1, weights="f32", kv="f32"),
        dtype="float32",
        max_model_len=64,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        kv_cache_tokens=1024,
    )
    engine = make_engine(create_cpu(context), prefix_cache=False)

    @cache
    def of(kind, prompt, count, size):
        engine.add(prepare(engine, kind, prompt, count, size, "0"))
        outputs = {}
        while engine.has_work:
            for _, output in engine.step():
                outputs.setdefault(output.index, []).append(output)
        return answer(outputs)

    return of


class Life:
    """Plays random events against an engine, checking integrity after each."""

    def __init__(self, engine, alone, seed, kinds):
        self.engine, self.alone, self.random, self.kinds = engine, alone, random.Random(seed), kinds
        self.live, self.outputs, self.wanted = {}, {}, {}
        self.ended = self.failed = 0

    def play(self, requests):
        for name in range(requests):
            while len(self.live) >= 9:
                self.step()
            self.add(str(name))
            for _ in range(self.random.randint(0, 3)):
                self.step()
            if self.random.random() < 0.15:
                self.abort()
        while self.engine.has_work:
            self.step()
        assert not self.live
        snapshot = self.engine.snapshot()
        assert (snapshot.running, snapshot.waiting) == (0, 0)
        assert snapshot.free_blocks == snapshot.total_blocks

    def add(self, name):
        draw = self.random
        own = [draw.randrange(128) for _ in range(draw.randint(1, 9))]
        kind = draw.choice(self.kinds)
        prompt = (*BEGINNING[: draw.choice([0, 3, 8, 14])], *own)
        if kind == "doomed":
            prompt = (DOOM, *prompt[1:])
        job = (kind, prompt, draw.randint(1, 9), draw.randint(1, 3))
        request = prepare(self.engine, *job, name)
        self.engine.add(request)
        self.live[request.number], self.outputs[request.number] = job, {}

    def abort(self):
        if self.live:
            number = self.random.choice(sorted(self.live))
            del self.live[number]
            self.engine.abort([number])
            self.engine.check_integrity()

    def step(self):
        for number, output in self.engine.step():
            if isinstance(output, Exception):
                assert self.live.pop(number)[0] == "doomed", output
                assert NO_MEMORY in str(output)
                self.failed += 1
                continue
            outputs = self.outputs[number]
            outputs.setdefault(output.index, []).append(output)
            kind, _, _, size = self.live[number]
            choices = size if kind in ("drawn", "beam", "words") else 1
            if sum(parts[-1].finish_reason is not None for parts in outputs.values()) == choices:
                self.compare(self.live.pop(number), answer(outputs))
        self.engine.check_integrity()

    def compare(self, job, found):
        (exact, rounded), (wanted, numbers) = found, self.alone(*job)
        assert exact == wanted, job
        np.testing.assert_allclose(rounded, numbers, rtol=1e-3, atol=1e-4, err_msg=str(job))
        self.ended += 1


@pytest.fixture
def short_of_memory(monkeypatch):
    """Steps may find too little memory, by chance, before or after they were computed."""
    compute, draw = Runner.compute, random.Random(1)

    def fail(self, batch):
        early, late = draw.random() < 0.1, draw.random() < 0.1
        if early and len(batch.token_ids) > 1:
            raise torch.OutOfMemoryError("so much")
        if DOOM in batch.token_ids[batch.positions == 0]:
            raise torch.OutOfMemoryError("so much")
        computed = compute(self, batch)
        if late and len(batch.token_ids) > 1:
            raise torch.OutOfMemoryError("so much")
        return computed

    monkeypatch.setattr(Runner, "compute", fail)


def live(model, alone, seed, *, requests, blocks=10, swap_blocks=8, graphs=True, prefix_cache=True, kinds=KINDS):
    executor = make_executor(
        model,
        graphs=graphs,
        block_size=BLOCK_SIZE,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=BUDGET,
        kv_cache_tokens=blocks * BLOCK_SIZE,
        swap_tokens=swap_blocks * BLOCK_SIZE,
    )
    engine = make_engine(
        executor,
        Whimsical(seed),
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=BUDGET,
        prefix_cache=prefix_cache,
    )
    assert engine.info.pipeline_depth == 2
    # What nobody wrote must not be read.
    executor._cache._data.fill_(torch.nan)
    executor._cache._swapped.fill_(torch.nan)
    life = Life(engine, alone, seed, kinds)
    life.play(requests)
    assert life.ended > requests / 2
    return life


@pytest.fixture
def quick(monkeypatch):
    """Without a device, references compute what is not the matter here."""
    if DEVICE.type == "cpu":
        reference_kernels.install(monkeypatch)


def test_a_short_life_on_kernels(model, alone):
    live(model, alone, 4, requests=12)


@pytest.mark.parametrize("graphs", [True, False])
def test_a_life_with_too_little_memory(model, alone, quick, graphs):
    scheduler = live(model, alone, 1, requests=250, graphs=graphs).engine._scheduler
    assert scheduler.preemptions > 20
    assert scheduler.swaps > 5


def test_a_life_without_swapping_or_shared_prompts(model, alone, quick):
    live(model, alone, 2, requests=100, swap_blocks=0, prefix_cache=False)


def test_a_life_of_steps_in_parts(model, alone, quick, short_of_memory):
    life = live(model, alone, 3, requests=150, kinds=(*KINDS, "doomed"))
    assert life.failed > 5
