"""Observers that are added while an engine lives, as frontends add theirs."""

import asyncio
import threading

from helpers import greedy, make_engine, start_engine

from corelm.api import (
    EngineInfo,
    ExecutorInfo,
    FirstToken,
    ModelCard,
    Observer,
    RequestFinished,
    RequestQueued,
    StepFinished,
)
from corelm.engine.async_engine import AsyncEngine
from corelm.engine.observing import Observing
from corelm.testing import FakeExecutor

INFO = EngineInfo(
    model=ModelCard(names=("m",), created=0, max_model_len=8),
    executor=ExecutorInfo(num_blocks=1, block_size=1, vocab_size=1, max_model_len=8, dtype="float32", device="cpu"),
)


def token(number):
    return FirstToken(time=float(number), request_id=str(number))


class Notes(Observer):
    """Writes down what it is told; raises in `events` if told to."""

    def __init__(self, error=None):
        self.error = error
        self.news = []
        self.told = threading.Event()

    def engine_started(self, info):
        self.news.append(("started", info.model.names))

    def events(self, batch):
        if self.error:
            raise self.error
        self.news += batch

    def engine_failed(self, reason):
        self.news.append("failed")
        self.told.set()

    def engine_stopped(self):
        self.news.append("stopped")


def test_one_that_is_added_before_the_start_is_told_everything():
    observing, notes = Observing(), Notes()
    observing.add("notes", notes)
    assert observing.active
    observing.started(INFO)
    observing.publish([token(1)])
    observing.close()
    assert notes.news == [("started", ("m",)), token(1), "stopped"]


def test_one_that_is_added_later_hears_who_serves_and_nothing_from_before():
    gate = threading.Event()

    class Slow(Observer):
        def events(self, batch):
            assert gate.wait(20)

    observing, notes = Observing([("slow", Slow())]), Notes()
    observing.publish([token(1)])
    observing.publish([token(2)])
    observing.add("notes", notes, INFO)
    observing.publish([token(3)])
    gate.set()
    observing.close()
    assert notes.news == [("started", ("m",)), token(3), "stopped"]


def test_one_that_is_added_while_the_last_other_is_switched_off_is_told_what_comes():
    standing, gate = threading.Event(), threading.Event()

    class Broken(Observer):
        def events(self, batch):
            standing.set()
            assert gate.wait(20)
            raise ValueError("a bug")

    observing, notes = Observing([("broken", Broken())]), Notes()
    observing.publish([token(1)])
    assert standing.wait(20)
    observing.add("notes", notes)
    gate.set()
    observing.failed("to wait for it")
    assert notes.told.wait(20)
    assert observing.active
    observing.publish([token(2)])
    observing.close()
    assert notes.news == ["failed", token(2), "stopped"]


def test_after_closing_nobody_is_added():
    observing, notes = Observing(), Notes()
    observing.close()
    observing.add("notes", notes, INFO)
    assert not observing.active
    assert notes.news == []


async def test_a_frontend_can_watch_the_engine_from_before_it_is_loaded():
    observing, notes = Observing(), Notes()
    engine = AsyncEngine(lambda progress: make_engine(observing=observing), names=["fake"], observing=observing)
    engine.observe(notes)
    await engine.start()
    await (await engine.generate("hello", greedy(), request_id="a")).result()
    await engine.stop()
    assert notes.news[0] == ("started", ("fake",))
    assert isinstance(notes.news[1], RequestQueued)
    [finished] = [event for event in notes.news if isinstance(event, RequestFinished)]
    assert (finished.request_id, finished.reason, finished.completion_tokens) == ("a", "length", 8)
    assert sum(isinstance(event, StepFinished) for event in notes.news) == 8
    assert notes.news[-1] == "stopped"


async def test_a_frontend_can_begin_to_watch_while_a_request_runs():
    reached, go = threading.Event(), threading.Event()

    def hold(plan):
        reached.set()
        assert go.wait(20)

    engine, notes = await start_engine(FakeExecutor(on_step=hold)), Notes()
    stream = await engine.generate("hello", greedy())
    await asyncio.to_thread(reached.wait, 20)
    engine.observe(notes)
    go.set()
    await stream.result()
    await (await engine.generate("more", greedy())).result()
    await engine.stop()
    assert notes.news[0] == ("started", ("fake",))
    assert sum(isinstance(event, RequestFinished) for event in notes.news) == 1, "only what it saw from the beginning"


async def test_a_frontends_observer_that_raises_is_named_and_requests_go_on(caplog):
    engine = await start_engine()
    engine.observe(Notes(ValueError("a bug")))
    assert (await (await engine.generate("hello", greedy())).result()).finish_reason == "length"
    await engine.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "the frontend's observer Notes failed and is switched off"
    ]
