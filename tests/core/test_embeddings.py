"""Requests for embeddings, on the fake executor."""

import asyncio
import math
import threading

import pytest
from helpers import expected_text, greedy, make_engine, make_intake, start_engine
from msgspec.structs import replace

from corelm.api import (
    Chat,
    DuplicateRequestError,
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    Observer,
    PluginError,
    QueueFullError,
    RequestFailedError,
    RequestFinished,
    RequestOptions,
    SchedulingPolicy,
)
from corelm.engine.observing import Observing
from corelm.testing import FakeExecutor, FakeTokenizer, fake_embedding

CHAT = Chat(messages=[{"role": "user", "content": "hi"}])


class Held(FakeExecutor):
    """Runs no step before `go` is set."""

    def __init__(self, **options):
        super().__init__(on_step=self._wait, **options)
        self.reached, self.go = threading.Event(), threading.Event()

    def _wait(self, plan):
        self.reached.set()
        assert self.go.wait(20)

    async def held(self):
        assert await asyncio.to_thread(self.reached.wait, 10)


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def ended(engine):
    """Stop an engine of which nothing runs any more and every block is free."""
    await until(lambda: engine.stats().running == engine.stats().waiting == 0)
    assert engine.stats().free_blocks == engine.stats().total_blocks
    await engine.stop()


@pytest.mark.parametrize("prompt", ["hello", [104, 105], CHAT], ids=["text", "ids", "chat"])
async def test_a_prompt_becomes_a_vector_of_length_one(prompt):
    engine = await start_engine()
    embedding = await engine.embed(prompt, request_id="x")
    tokens = await engine.tokenize(prompt)
    assert embedding.data == fake_embedding(tokens)
    assert math.isclose(math.hypot(*embedding.vector), 1.0, rel_tol=1e-6)
    assert len(embedding.vector) == engine.model.embedding_size == engine.info.embedding_size
    assert (embedding.request_id, embedding.prompt_tokens, embedding.cached_tokens) == ("x", len(tokens), 0)
    stats = engine.stats()
    assert (stats.finished, stats.prompt_tokens, stats.generation_tokens) == ({"stop": 1}, len(tokens), 0)
    await ended(engine)


@pytest.mark.parametrize("depth", [1, 2])
async def test_vectors_among_texts_in_chunks_and_in_little_memory(depth):
    """More than the pool holds, in chunks of at most 7 tokens, some preempted on the way."""
    executor = FakeExecutor(num_blocks=20, pipeline_depth=depth, num_swap_blocks=4)
    engine = await start_engine(executor, max_num_batched_tokens=7, max_num_seqs=5)
    prompts = [f"{number} " * (1 + number % 12) for number in range(30)]

    async def client(number):
        if number % 3:
            assert (await engine.embed(prompts[number])).data == fake_embedding(list(prompts[number].encode()))
        else:
            output = await (await engine.generate(prompts[number], greedy(max_tokens=30))).result()
            assert output.text == expected_text(prompts[number], 30)

    await asyncio.gather(*map(client, range(30)))
    assert engine.stats().preemptions
    await ended(engine)


async def test_a_prompt_that_the_prefix_cache_has_is_not_computed_again():
    engine = await start_engine(FakeExecutor(block_size=4))
    text = "sixteen letters."
    first = await engine.embed(text)
    again, salted = await engine.embed(text), await engine.embed(text, options=RequestOptions(cache_salt="own"))
    assert first.data == again.data == salted.data == fake_embedding(list(text.encode()))
    assert (first.cached_tokens, again.cached_tokens, salted.cached_tokens) == (0, 12, 0)
    output = await (await engine.generate(f"{text} more", greedy())).result()
    assert (output.cached_tokens, output.text) == (16, expected_text(f"{text} more"))
    await ended(engine)


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_an_abort_ends_it_with_an_error(when):
    executor = Held()
    engine = await start_engine(executor, max_num_seqs=1)
    first = asyncio.create_task(engine.embed("first", request_id="running"))
    await executor.held()
    second = asyncio.create_task(engine.embed("second", request_id="waiting"))
    await until(lambda: engine.stats().waiting == 2)  # what the held step took counts until it ends
    engine.abort(when)
    aborted, other = (first, second) if when == "running" else (second, first)
    with pytest.raises(RequestFailedError, match="aborted"):
        await aborted
    executor.go.set()
    assert len((await other).vector) == 8
    await ended(engine)


async def test_whoever_stops_waiting_aborts_it():
    executor = Held()
    engine = await start_engine(executor)
    task = asyncio.create_task(engine.embed("a"))
    await executor.held()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    executor.go.set()
    await ended(engine)
    assert engine.stats().finished == {"abort": 1}


async def test_the_queue_is_bounded_and_ids_are_unique():
    executor = Held()
    engine = await start_engine(executor, max_num_seqs=1, max_waiting=2)
    tasks = [asyncio.create_task(engine.embed("a", request_id="a"))]
    await executor.held()
    tasks.append(asyncio.create_task(engine.embed("b")))
    await until(lambda: engine.stats().waiting == 2)  # what the held step took counts until it ends
    with pytest.raises(QueueFullError):
        await engine.embed("c")
    with pytest.raises(QueueFullError):
        await engine.generate("c", greedy())
    executor.go.set()
    await asyncio.gather(*tasks)
    await ended(engine)


async def test_a_living_id_is_refused():
    executor = Held()
    engine = await start_engine(executor)
    stream = await engine.generate("a", greedy(max_tokens=1), request_id="a")
    with pytest.raises(DuplicateRequestError):
        await engine.embed("b", request_id="a")
    executor.go.set()
    await stream.result()
    await ended(engine)


async def test_a_draining_engine_ends_what_runs_and_takes_nothing_new():
    executor = Held()
    engine = await start_engine(executor)
    task = asyncio.create_task(engine.embed("a"))
    await executor.held()
    engine.drain()
    with pytest.raises(EngineStoppedError, match="shutting down"):
        await engine.embed("b")
    executor.go.set()
    assert len((await task).vector) == 8
    await engine.stop()


async def test_a_failing_step_is_told():
    engine = await start_engine(FakeExecutor(on_step=lambda plan: 1 / 0))
    with pytest.raises(EngineDeadError, match="ZeroDivisionError"):
        await engine.embed("a")
    await engine.stop()


async def test_priority_and_fairness_see_it():
    seen, served = [], []

    class Watching(SchedulingPolicy):
        def key(self, request):
            seen.append((request.request_id, request.priority, request.tenant, request.max_tokens))
            return request.priority

        def served(self, work):
            served.extend((item.request.request_id, item.prompt_tokens, item.output_tokens) for item in work)

    engine = await start_engine(policy=Watching(), max_num_batched_tokens=4)
    await engine.embed("tokens", request_id="x", options=RequestOptions(priority=3, tenant="me"))
    assert seen == [("x", 3, "me", 0)]
    assert served == [("x", 4, 0), ("x", 2, 0)]
    await ended(engine)


async def test_observers_are_told():
    class Recorder(Observer):
        def __init__(self):
            self.ends = []

        def events(self, batch):
            self.ends += [event for event in batch if isinstance(event, RequestFinished)]

    recorder = Recorder()
    engine = await start_engine(observing=Observing([("recorder", recorder)]))
    await engine.embed("text", request_id="x")
    await ended(engine)
    (end,) = recorder.ends
    assert (end.request_id, end.reason, end.prompt_tokens, end.completion_tokens) == ("x", "stop", 4, 0)


def prepare(intake, prompt, truncate=None):
    return intake.prepare_embedding(prompt, truncate, request_id="x", arrival=0.0)


def test_an_executor_that_cannot_is_not_asked():
    with pytest.raises(InvalidRequestError, match="lacks the capability 'embeddings'"):
        prepare(make_intake(capabilities=frozenset({"logprobs"})), "a")


def test_a_prompt_may_fill_the_context():
    intake = make_intake(max_model_len=10, capabilities=frozenset({"embeddings"}))
    assert prepare(intake, "a" * 10).first.prompt_len == 10
    with pytest.raises(InvalidRequestError, match=r"holds 10 tokens; the prompt has 11$") as refusal:
        prepare(intake, "a" * 11)
    assert (refusal.value.param, refusal.value.code) == ("prompt", "context_length_exceeded")


@pytest.mark.parametrize(("prompt", "why"), [("", "empty"), ([], "empty"), ([258], "258 is outside"), ([1.5], "float")])
def test_a_prompt_must_be_one(prompt, why):
    with pytest.raises(InvalidRequestError, match=why):
        prepare(make_intake(capabilities=frozenset({"embeddings"})), prompt)


def test_truncation_keeps_the_end():
    intake = make_intake(max_model_len=10, capabilities=frozenset({"embeddings"}))
    text = "".join(map(chr, range(32, 112)))
    assert prepare(intake, text, 3).first.token_ids == [109, 110, 111]
    assert prepare(intake, text, -1).first.token_ids == list(range(102, 112))
    for bad in (0, -2, True, "3"):
        with pytest.raises(InvalidRequestError, match="truncate_prompt_tokens"):
            prepare(intake, text, bad)


@pytest.mark.parametrize(
    ("given", "why"),
    [({}, "gave no embedding"), ({1: b""}, "0 bytes for an embedding of 8"), ({1: b"x" * 36}, "36 bytes")],
    ids=["none", "empty", "too long"],
)
async def test_what_the_executor_gives_is_checked(given, why):
    class Wrong(FakeExecutor):
        def execute(self, plan):
            return replace(super().execute(plan), embeddings=given)

    engine = await start_engine(Wrong())
    with pytest.raises((RequestFailedError, EngineDeadError), match=why):
        await engine.embed("a")
    await engine.stop()


async def test_one_that_fails_alone_does_not_touch_the_others():
    class Picky(FakeExecutor):
        def execute(self, plan):
            bad = {start.seq_id: "bad luck" for start in plan.started if start.token_ids[0] == ord("!")}
            return replace(super().execute(plan), errors=bad)

    engine = await start_engine(Picky())
    good, bad = await asyncio.gather(engine.embed("a"), engine.embed("!"), return_exceptions=True)
    assert good.data == fake_embedding([ord("a")])
    assert isinstance(bad, RequestFailedError)
    assert str(bad) == "bad luck"
    await ended(engine)


def test_an_engine_knows_no_half_requests():
    """Between the steps of a long prompt, and after its end."""
    engine = make_engine(FakeExecutor(), max_num_batched_tokens=4)
    engine.add(prepare(engine.intake, "ten tokens"))
    outputs = []
    while engine.has_work:
        outputs += engine.step()
        engine.check_integrity()
    assert [output.embedding.data for _, output in outputs] == [fake_embedding(list(b"ten tokens"))]
    assert engine.snapshot().steps == 3


@pytest.mark.parametrize("size", [0, 8])
def test_what_is_declared_must_fit_together(monkeypatch, size):
    from corelm.assembly import create_engine

    class Confused(FakeExecutor):
        def load(self, progress):
            capabilities = frozenset() if size else frozenset({"embeddings"})
            return replace(super().load(progress), embedding_size=size, capabilities=capabilities)

    monkeypatch.setattr("corelm_fake._Scripted", lambda settings, context: Confused())
    engine = create_engine("fake", executor="fake", tokenizer="fake")
    with pytest.raises(PluginError, match=f"embedding_size = {size} with"):
        asyncio.run(engine.start())


async def test_a_tokenizer_that_hangs_does_not_hold_it_for_ever():
    gate = threading.Event()

    class Hangs(FakeTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            gate.wait(20)
            return super().encode(text)

    engine = await start_engine(tokenizer=Hangs(), iteration_timeout_s=0.1)
    with pytest.raises(RequestFailedError, match="tokenised"):
        await engine.embed("a")
    gate.set()
    await engine.stop()
