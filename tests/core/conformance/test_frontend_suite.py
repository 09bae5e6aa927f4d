"""The frontend suite passes what ``corelm plugins new`` writes, and says what is wrong with broken frontends."""

import asyncio
import json
import re
import socket
from contextlib import ExitStack, asynccontextmanager
from types import ModuleType
from urllib.parse import urlsplit

import pytest

from corelm.api import CorelmError, Frontend, StartupError
from corelm.cli.scaffold import project
from corelm.testing import FrontendConformance
from corelm.testing.conformance.running import run_suite

sockets = ExitStack()
line = ModuleType("line")
exec(compile(project("frontend", "line")["corelm_line.py"], "corelm_line.py", "exec"), vars(line))


class Suite(FrontendConformance):
    frontend = line.LineFrontend

    def make_frontend(self):
        return self.frontend(line.LineSettings(port=0, max_tokens=40))

    async def ask(self, frontend, prompt):
        async with asking(frontend, prompt) as reader:
            pieces = [json.loads(text) async for text in reader]
        assert "finished" in pieces[-1], pieces[-1]
        return "".join(piece.get("text", "") for piece in pieces)

    async def ask_and_leave(self, frontend, prompt):
        async with asking(frontend, prompt) as reader:
            await reader.readline()


@asynccontextmanager
async def asking(frontend, prompt):
    address = urlsplit(frontend.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(f"{prompt}\n".encode())
        yield reader
    finally:
        writer.close()
        await writer.wait_closed()


class TestLineFrontend(Suite):
    pass


class Crashing(Frontend):
    def __init__(self, settings):
        pass

    async def serve(self, engine, stop):
        raise StartupError("port 1 is in use; choose another with --line.port")


class Returning(line.LineFrontend):
    async def serve(self, engine, stop):
        self.url = "tcp://nowhere:1"


class Patient(line.LineFrontend):
    """Opens its port when the model is there."""

    async def serve(self, engine, stop):
        while engine.status == "starting":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await super().serve(engine, stop)


class Deaf(line.LineFrontend):
    async def serve(self, engine, stop):
        await super().serve(engine, asyncio.Event())


class Staying(line.LineFrontend):
    """Returns, but goes on in a task of its own."""

    async def serve(self, engine, stop):
        self.task = asyncio.create_task(super().serve(engine, asyncio.Event()))
        await stop.wait()


class Open(line.LineFrontend):
    """Leaves a port open that nobody serves."""

    async def serve(self, engine, stop):
        await super().serve(engine, stop)
        address = urlsplit(self.url)
        sockets.enter_context(socket.create_server((address.hostname, address.port)))


class Cutting(line.LineFrontend):
    """Has no patience with what runs."""

    async def serve(self, engine, stop):
        async def cut():
            await stop.wait()
            for task in self._clients:
                task.cancel()

        cutting = asyncio.create_task(cut())
        await super().serve(engine, stop)
        await cutting


class Hanging(line.LineFrontend):
    """Waits for clients that say nothing, such as the one that stays connected."""

    async def serve(self, engine, stop):
        await super().serve(engine, stop)
        await asyncio.Event().wait()


class Indifferent(line.LineFrontend):
    """Does not notice who left."""

    async def _answer(self, stream, reader, writer):
        async for output in stream:
            writer.write(json.dumps({"text": output.text}).encode() + b"\n")
        writer.write(b'{"finished": "stop"}\n')


class Hiding(line.LineFrontend):
    """Tells nobody of errors."""

    async def _answer(self, stream, reader, writer):
        try:
            await super()._answer(stream, reader, writer)
        except CorelmError:
            writer.write(b'{"finished": "stop"}\n')


class Mixing(line.LineFrontend):
    """Gives everybody the first answer."""

    first = None

    async def _answer(self, stream, reader, writer):
        output = await stream.result()
        Mixing.first = Mixing.first or output.text
        writer.write(json.dumps({"text": Mixing.first}).encode() + b'\n{"finished": "stop"}\n')


class Rewording(line.LineFrontend):
    async def _prompt(self, reader, writer):
        return (await super()._prompt(reader, writer)).upper()


@pytest.mark.parametrize(
    ("frontend", "check", "message"),
    [
        (Crashing, "it listens while the model is loading", "port 1 is in use"),
        (Returning, "it returns when told to stop", "serve() returned before stop was set"),
        (Patient, "it listens while the model is loading", "serve() must open its port at once"),
        (Deaf, "it returns when told to stop", "serve() did not return within"),
        (Hanging, "it returns when told to stop", "serve() did not return within"),
        (Staying, "it returns when told to stop", "cancel and await every task that it started"),
        (Open, "nothing new is taken after stop", "close the port before that"),
        (Cutting, "what runs may end after stop", "assert 'finished' in"),
        (Indifferent, "a client that leaves ends its request", "call abort() on its stream"),
        (Hiding, "a failure of the engine reaches the client", "the client could not tell"),
        (Mixing, "each client gets its own answer", "the engine said '"),
        (Rewording, "each client gets its own answer", "hand what clients send to engine.generate() unchanged"),
    ],
)
def test_what_is_wrong_is_named(frontend, check, message, monkeypatch):
    monkeypatch.setattr("corelm.testing.conformance.stage.PATIENCE_S", 0.4)
    monkeypatch.setattr("corelm.testing.conformance.frontend.PATIENCE_S", 0.4)
    suite = Suite()
    suite.frontend = frontend
    with sockets, pytest.raises(Exception, match=re.escape(message)):
        getattr(suite, f"test_{check.replace(' ', '_')}")()


def test_the_author_s_part_must_be_written():
    results = run_suite(FrontendConformance())
    assert all("write make_frontend()" in result.message for result in results)
    suite = FrontendConformance()
    suite.make_frontend = Suite().make_frontend
    results = {result.name: result for result in run_suite(suite)}
    assert results["it returns when told to stop"].passed
    assert "write ask()" in results["each client gets its own answer"].message
    assert "write ask_and_leave()" in results["a client that leaves ends its request"].message
