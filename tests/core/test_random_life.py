"""Random lives of an engine: every invariant after every step, and every request ends with the text it has alone."""

import itertools
import json
import random

import pytest
from corelm_fcfs import FCFS, Fair, FairSettings, Priority
from helpers import expected_text, make_engine
from hypothesis import given, settings
from hypothesis import strategies as st
from test_groups import beam_search

from corelm.api import BeamSearch, RequestOptions, SamplingParams, SchedulingPolicy, StructuredOutput
from corelm.engine.embedding import EmbeddingOutput
from corelm.testing import FakeExecutor, fake_embedding
from corelm.testing.executor import fake_next_token

BLOCK_SIZE = 4
GRAMMAR_TEXTS = ["alpha one", "alpha two", "beta or not to be", "gamma"]


class Whimsical(SchedulingPolicy):
    """Orders, preempts and swaps at random."""

    def __init__(self, seed=0):
        self.random = random.Random(seed)

    def order(self, waiting, now):
        names = [request.request_id for request in waiting]
        self.random.shuffle(names)
        return names[: self.random.randint(1, len(names))]

    def victim(self, running, now):
        return self.random.choice(running).request_id

    def swap(self, request):
        return self.random.random() < 0.7


POLICIES = {
    "fcfs": FCFS,
    "priority": lambda: Priority(3.0),
    "fair": lambda: Fair(FairSettings()),
    "whimsical": Whimsical,
}


class Life:
    """Plays events against an engine, checking integrity after each."""

    def __init__(self, engine):
        self.engine = engine
        self.names = itertools.count()
        self.live = {}
        self.steps = 0

    def add(self, kind, length, count, size, priority):
        name = str(next(self.names))
        prompt = "the same beginning"[:length] + "x" * (length % 7) + name
        options = RequestOptions(
            priority=priority, tenant=str(priority), cache_salt="s" * (priority % 2), prefix_cache=priority != 2
        )
        request = self.prepare(kind, prompt, count, size, request_id=name, arrival=float(name), options=options)
        self.engine.add(request)
        self.live[request.number] = (expected(kind, prompt, count, size), {})

    def prepare(self, kind, prompt, count, size, **options):
        if kind == "embed":
            return self.engine.intake.prepare_embedding(prompt, None, **options)
        if kind == "grammar":
            wanted = StructuredOutput(kind="choice", source=json.dumps(GRAMMAR_TEXTS))
            params = SamplingParams(structured_output=wanted, n=size, seed=3, max_tokens=count)
            grammar = self.engine.intake.grammars().compile(wanted)
            return self.engine.intake.prepare(prompt, params, grammar=grammar, **options)
        params = {
            "plain": SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=count),
            "group": SamplingParams(n=size, seed=3, ignore_eos=True, max_tokens=count),
            "beam": SamplingParams(beam=BeamSearch(width=size), n=size, ignore_eos=True, max_tokens=count),
            "scored": SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=count, prompt_logprobs=0, logprobs=0),
        }[kind]
        return self.engine.intake.prepare(prompt, params, **options)

    def abort(self, index):
        if self.live:
            number = list(self.live)[index % len(self.live)]
            del self.live[number]
            self.engine.abort([number])
            self.engine.check_integrity()

    def step(self, times):
        for _ in range(times):
            self.steps += 1
            for number, output in self.engine.step():
                wanted, texts = self.live[number]
                texts[output.index] = texts.get(output.index, "") + output.text
                if output.prompt_logprobs:
                    assert output.prompt_logprobs[0] is None
                    assert None not in output.prompt_logprobs[1:]
                if output.finish_reason:
                    made = output.embedding.data if isinstance(output, EmbeddingOutput) else texts[output.index]
                    assert made == wanted.pop(output.index)
                    if not wanted:
                        del self.live[number]
            self.engine.check_integrity()

    def finish(self):
        for _ in range(50_000):
            if not self.engine.has_work:
                break
            self.step(1)
        assert not self.live
        snapshot = self.engine.snapshot()
        assert (snapshot.running, snapshot.waiting) == (0, 0)
        assert snapshot.free_blocks == snapshot.total_blocks
        assert self.engine._scheduler.memory.swap_pool.num_free == self.engine.info.num_swap_blocks


def expected(kind, prompt, count, size):
    """Texts by choice, or the embedding."""
    if kind == "embed":
        return {0: fake_embedding(list(prompt.encode()))}
    if kind == "beam":
        return dict(enumerate(beam_search(list(prompt.encode()), BeamSearch(width=size), count)))
    if kind == "grammar":
        return {index: walk(list(prompt.encode()), count, 3 + index) for index in range(size)}
    if kind == "group":
        return {index: expected_text(prompt, count, 3 + index) for index in range(size)}
    return {0: expected_text(prompt, count)}


def walk(tokens, count, seed):
    """What the fake executor writes alone, keeping to the texts."""
    text, start = b"", len(tokens)
    while len(text) < count:
        rests = [each[len(text) :] for each in map(str.encode, GRAMMAR_TEXTS) if each.startswith(text)]
        if rests == [b""]:
            break
        text += bytes([fake_next_token([*tokens[:start], *text], seed, sorted({rest[0] for rest in rests}))])
    return text[:count].decode()


def make_life(policy, num_blocks, budget, max_num_seqs, prefix_cache, swap, depth):
    executor = FakeExecutor(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        num_swap_blocks=swap,
        pipeline_depth=depth,
    )
    return Life(
        make_engine(
            executor,
            POLICIES[policy](),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            prefix_cache=prefix_cache,
        )
    )


KINDS = ["plain", "plain", "group", "beam", "scored", "embed", "grammar"]
KIND = st.sampled_from(KINDS)
EVENT = st.one_of(
    st.tuples(st.just("add"), KIND, st.integers(1, 30), st.integers(1, 16), st.integers(1, 4), st.integers(-2, 2)),
    st.tuples(st.just("abort"), st.integers(0, 20)),
    st.tuples(st.just("step"), st.integers(1, 6)),
)


@settings(max_examples=500)
@given(
    st.lists(EVENT, max_size=40),
    st.sampled_from(sorted(POLICIES)),
    st.integers(12, 30),
    st.integers(1, 40),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([0, 3, 40]),
    st.sampled_from([1, 2, 3]),
)
def test_random_lives(events, policy, num_blocks, budget, max_num_seqs, prefix_cache, swap, depth):
    life = make_life(policy, num_blocks, budget, max_num_seqs, prefix_cache, swap, depth)
    for name, *values in events:
        getattr(life, name)(*values)
    life.finish()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_long_life(policy, depth):
    """Thousands of steps of one engine, always near the end of its memory."""
    draw = random.Random(f"{policy} {depth}")
    life = make_life(policy, 24, 24, 6, prefix_cache=True, swap=10, depth=depth)
    while life.steps < 1500:
        if len(life.live) < 8:
            kind = draw.choice(KINDS)
            life.add(kind, draw.randint(1, 30), draw.randint(1, 16), draw.randint(1, 4), draw.randint(-2, 2))
        if draw.random() < 0.03:
            life.abort(draw.randint(0, 20))
        life.step(draw.randint(1, 3))
    life.finish()
    scheduler = life.engine._scheduler
    assert scheduler.preemptions > 50
    assert scheduler.swaps > 10
