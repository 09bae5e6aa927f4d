"""The parts of ``corelm run`` that need no process of their own."""

import asyncio
import logging

import pytest

from corelm.cli import serve
from corelm.cli.progress import LoadingProgress
from corelm.errors import StartupError


class Engine:
    """Records what it is told; loading lasts until `loaded` is set."""

    def __init__(self):
        self.told = []
        self.loaded = asyncio.Event()
        self.broken = asyncio.Event()
        self.failure = None

    async def start(self, progress):
        progress(0.5, "half")
        await self.loaded.wait()

    async def failed(self):
        await self.broken.wait()

    def drain(self):
        self.told.append("drain")

    async def stop(self):
        self.told.append("stop")


class Frontend:
    def __init__(self, act):
        self.act = act

    async def serve(self, engine, stop):
        await self.act(engine, stop)


async def until_stopped(engine, stop):
    await stop.wait()


async def never_returns(engine, stop):
    await asyncio.Event().wait()


@pytest.fixture
def engine():
    return Engine()


def server(engine, act, **options):
    return serve.Server(engine, Frontend(act), **{"drain_timeout_s": 0.01, "exit_on_engine_error": True, **options})


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    for name in ("GRACE_S", "FAILURE_S", "STOP_S"):
        monkeypatch.setattr(serve, name, 0.01)


def ignore(fraction, doing):
    pass


async def test_the_frontend_serves_before_the_model_is_loaded(engine):
    order = []

    async def act(engine, stop):
        order.append("serving")
        engine.loaded.set()
        await stop.wait()

    running = server(engine, act)
    code = await running.run(ignore, lambda: (order.append("ready"), running.shutdown.set()))
    assert code == 0
    assert order == ["serving", "ready"]
    assert engine.told == ["drain", "stop"]


async def test_it_is_never_ready_when_told_to_end_while_loading(engine):
    running = server(engine, until_stopped)
    running.shutdown.set()
    assert await running.run(ignore, lambda: pytest.fail("not loaded")) == 0
    assert engine.told == ["drain", "stop"]


async def test_a_frontend_that_never_returns_is_not_waited_for(engine):
    engine.loaded.set()
    running = server(engine, never_returns)
    async with asyncio.timeout(5):
        assert await running.run(ignore, running.shutdown.set) == 0
    assert engine.told == ["drain", "stop"]


async def test_an_engine_that_does_not_stop_is_not_waited_for(engine):
    engine.stop = asyncio.Event().wait
    engine.loaded.set()
    running = server(engine, until_stopped)
    async with asyncio.timeout(5):
        assert await running.run(ignore, running.shutdown.set) == 0


async def test_a_frontend_that_ends_by_itself_ends_the_server(engine):
    async def act(engine, stop):
        engine.loaded.set()

    assert await server(engine, act).run(ignore, lambda: None) == 0
    assert engine.told == ["drain", "stop"]


async def test_the_drain_waits_for_the_frontend(engine):
    engine.loaded.set()
    told_at_the_end = []

    async def act(engine, stop):
        await stop.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        told_at_the_end.extend(engine.told)

    running = server(engine, act, drain_timeout_s=10)
    assert await running.run(ignore, running.shutdown.set) == 0
    assert told_at_the_end == ["drain"]


async def test_what_fails_first_is_raised_after_the_engine_was_stopped(engine):
    async def act(engine, stop):
        raise StartupError("in use")

    with pytest.raises(StartupError, match="in use"):
        await server(engine, act).run(ignore, lambda: pytest.fail("not loaded"))
    assert engine.told == ["drain", "stop"]


async def test_a_failed_engine_is_exit_code_1(engine):
    engine.loaded.set()

    def fail():
        engine.failure = RuntimeError()
        engine.broken.set()

    assert await server(engine, until_stopped).run(ignore, fail) == 1


def test_progress_without_a_terminal_is_a_line_for_each_tenth(caplog):
    with caplog.at_level(logging.INFO):
        progress = LoadingProgress()
        for percent in range(101):
            progress(percent / 100, f"tensor {percent}")
        progress.close()
    assert len(caplog.messages) == 11
    assert caplog.messages[0] == "loading: 0%, tensor 0"
    assert caplog.messages[-1] == "loading: 100%, tensor 100"


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = LoadingProgress()
    progress(0.5, "reading")
    progress(1.0, "reading")
    progress.close()
    assert "reading: 100%" in capsys.readouterr().err
