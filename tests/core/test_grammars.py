"""Compiling grammars: once for all who share one, in bounded time, and without harm to anybody else."""

import asyncio
import json
import threading
import time

import pytest
from helpers import greedy, make_engine, make_grammars, start_engine

from corelm.api import InvalidRequestError, QueueFullError, RequestFailedError, SamplingParams, StructuredOutput
from corelm.testing import FakeExecutor, FakeGrammarCompiler, allowed_tokens

PATIENCE_S = 10.0


def literal(text):
    return StructuredOutput(kind="grammar", source=text)


class Slow(FakeGrammarCompiler):
    """Counts, and holds sources that begin with "slow" until it is told to go on."""

    def __init__(self):
        super().__init__()
        self.compiled = []
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()

    def compile(self, wanted):
        self.compiled.append(wanted.source)
        if wanted.source.startswith("slow"):
            self.begun.release()
            assert self.go_on.wait(PATIENCE_S)
        if wanted.source == "broken":
            raise KeyError("a mistake")
        if wanted.source == "panic":
            raise BaseException("from another language")
        return super().compile(wanted)


@pytest.fixture
def compiler():
    compiler = Slow()
    yield compiler
    compiler.go_on.set()


def grammar_threads():
    return sum(thread.name == "corelm-grammar" for thread in threading.enumerate())


def grammars_of(compiler, **options):
    return make_grammars(compiler, **options)


def test_a_grammar_comes_with_the_mask_of_every_first_token(compiler):
    compiled = grammars_of(compiler).compile(literal("abc"))
    assert allowed_tokens(compiled.first_mask) == [ord("a")]
    assert compiled.grammar.matcher() is not compiled.grammar.matcher()


def test_what_was_compiled_is_kept_and_the_least_recently_used_goes(compiler):
    grammars = grammars_of(compiler, kept=2)
    for text in "a", "b", "a", "c", "a", "b":
        grammars.compile(literal(text))
    assert compiler.compiled == ["a", "b", "c", "b"]
    assert grammars.compile(literal("a")) is grammars.compile(literal("a"))


def test_the_kind_belongs_to_the_source(compiler):
    grammars = grammars_of(compiler)
    one = grammars.compile(StructuredOutput(kind="choice", source='["a"]'))
    other = grammars.compile(StructuredOutput(kind="json_schema", source='["a"]'))
    assert (allowed_tokens(one.first_mask), allowed_tokens(other.first_mask)) == ([ord("a")], [ord("[")])


def test_a_bad_source_is_refused_each_time_and_poisons_nothing(compiler):
    grammars = grammars_of(compiler)
    for _ in range(3):
        with pytest.raises(InvalidRequestError, match="structured_output: the source is not JSON") as caught:
            grammars.compile(StructuredOutput(kind="json_schema", source="{"))
        assert caught.value.param == "structured_output"
        grammars.compile(literal("good"))
    assert compiler.compiled == ["{", "good", "{", "{"]


@pytest.mark.parametrize("source", ["broken", "panic"])
def test_a_compiler_that_fails_does_not_end_its_thread(compiler, source):
    grammars = grammars_of(compiler)
    for _ in range(5):
        with pytest.raises(RequestFailedError, match="could not be compiled"):
            grammars.compile(literal(source))
    grammars.compile(literal("good"))


def test_a_grammar_that_nothing_matches_is_refused(compiler):
    compiler.masks = lambda matchers: [bytes(36) for _ in matchers]
    with pytest.raises(InvalidRequestError, match="nothing can match"):
        grammars_of(compiler).compile(literal("a"))


@pytest.mark.parametrize("masks", [[], [b"1234"], [bytes(36)] * 2])
def test_masks_of_the_wrong_form_are_the_compilers_fault(compiler, masks):
    compiler.masks = lambda matchers: masks
    with pytest.raises(RequestFailedError, match="each of 1 rows 36 bytes"):
        grammars_of(compiler).compile(literal("a"))


def test_its_threads_have_room_to_recurse(compiler):
    depths = []
    make = compiler.compile

    def compile_deeply(wanted):
        depths.append(_nested(20_000))
        return make(wanted)

    compiler.compile = compile_deeply
    grammars_of(compiler).compile(literal("a"))
    assert depths == [20_000]


def _nested(depth):
    """Recurses in C: repr() of lists in lists, which Python's own limit does not stop where it is high enough."""
    import sys

    nested = []
    for _ in range(depth):
        nested = [nested]
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * depth)
    try:
        return repr(nested).count("[") - 1
    finally:
        sys.setrecursionlimit(usual)


async def test_requests_with_the_same_source_share_one_compilation(compiler):
    grammars = grammars_of(compiler)
    waiting = [asyncio.create_task(grammars.compiled(literal("slow"))) for _ in range(10)]
    await asyncio.to_thread(compiler.begun.acquire)
    compiler.go_on.set()
    assert len(set(map(id, await asyncio.gather(*waiting)))) == 1
    assert compiler.compiled == ["slow"]


async def test_too_slow_a_source_is_refused_and_what_waits_behind_it_is_told_to_come_again(compiler):
    grammars = grammars_of(compiler, timeout_s=0.1)
    slow = [asyncio.create_task(grammars.compiled(literal(f"slow {i}"))) for i in range(2)]
    for _ in slow:
        await asyncio.to_thread(compiler.begun.acquire)
    with pytest.raises(QueueFullError, match="try again later"):
        await grammars.compiled(literal("good"))
    for one in slow:
        with pytest.raises(InvalidRequestError, match=r"longer than 0\.1 s to compile"):
            await one
    compiler.go_on.set()
    await asyncio.wait_for(asyncio.to_thread(_until_it_compiles, grammars), PATIENCE_S)
    assert compiler.compiled.count("good") == 1


def _until_it_compiles(grammars):
    while True:
        try:
            return grammars.compile(literal("good"))
        except QueueFullError:
            pass


async def test_what_nobody_waits_for_any_more_does_not_begin(compiler):
    grammars = grammars_of(compiler)
    slow = [asyncio.create_task(grammars.compiled(literal(f"slow {i}"))) for i in range(2)]
    for _ in slow:
        await asyncio.to_thread(compiler.begun.acquire)
    left = [asyncio.create_task(grammars.compiled(literal("left"))) for _ in range(2)]
    stays = [asyncio.create_task(grammars.compiled(literal("stays"))) for _ in range(2)]
    await asyncio.sleep(0)
    for one in (*left, stays[0]):
        one.cancel()
    await asyncio.wait([*left, stays[0]])
    compiler.go_on.set()
    await asyncio.gather(*slow, stays[1])
    assert sorted(compiler.compiled) == ["slow 0", "slow 1", "stays"]


async def test_while_grammars_compile_others_are_served_and_threads_stay_few(compiler):
    engine = await start_engine(FakeExecutor(), grammars=make_grammars(compiler))
    before = grammar_threads()
    params = [SamplingParams(structured_output=literal(f"slow {i}"), max_tokens=5) for i in range(50)]
    pending = [asyncio.create_task(engine.generate("a", one)) for one in params]
    await asyncio.to_thread(compiler.begun.acquire)
    begin = time.monotonic()
    streams = [await engine.generate(f"plain {i}", greedy()) for i in range(8)]
    for stream in streams:
        assert (await stream.result()).finish_reason == "length"
    assert time.monotonic() - begin < PATIENCE_S / 2
    assert grammar_threads() == before + 2
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    compiler.go_on.set()
    good = await engine.generate("a", SamplingParams(structured_output=literal("good")))
    assert (await good.result()).text == "good"
    assert len(compiler.compiled) <= 4
    await engine.stop()


async def test_a_refused_request_leaves_its_id_free_and_the_engine_serving():
    engine = await start_engine(FakeExecutor())
    running = await engine.generate("stream", greedy(max_tokens=200, ignore_eos=True))
    bad = SamplingParams(structured_output=StructuredOutput(kind="json_schema", source="nope"))
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="not JSON"):
            await engine.generate("a", bad, request_id="same")
    good = SamplingParams(structured_output=StructuredOutput(kind="json_schema", source='{"a": 1}'))
    stream = await engine.generate("a", good, request_id="same")
    assert json.loads((await stream.result()).text) == {"a": 1}
    assert (await running.result()).completion_tokens == 200
    await engine.stop()


def test_the_threads_end_with_the_engine(compiler):
    engine = make_engine(FakeExecutor(), grammars=make_grammars(compiler))
    before = set(threading.enumerate())
    engine.intake.grammars().compile(literal("a"))
    own = set(threading.enumerate()) - before
    assert len(own) == 2
    engine.shutdown()
    for thread in own:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
