"""Start, stop and drain."""

import asyncio
import logging
import re
import signal
import socket
import threading
from types import SimpleNamespace

import httpx
import pytest
from corelm_openai import plugin
from corelm_openai.frontend import OpenAIFrontend
from corelm_openai.http.server import listen, url_of
from corelm_openai.settings import OpenAISettings
from helpers import start_engine
from openai_http import Http, assert_error, events_of, raw_request, until

from corelm.api import EngineStoppedError, FrontendContext, StartupError
from corelm.testing import FakeExecutor


def body(**values):
    return {"model": "fake", "prompt": "one two", "stream": True, **values}


async def test_serves_until_stopped(engine, caplog):
    caplog.set_level(logging.INFO)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stop = asyncio.Event()
    serving = asyncio.create_task(OpenAIFrontend(OpenAISettings(port=0)).serve(engine, stop))
    await until(lambda: "listening on" in caplog.text)
    url = re.search(r"listening on (\S+)/v1", caplog.text)[1]
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/health")).status_code == 200
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        stop.set()
        await asyncio.wait_for(serving, 5)
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{url}/health")
    assert [record.name for record in caplog.records if record.name.startswith(("corelm", "uvicorn"))] == [
        "corelm_openai.frontend"
    ]


async def test_a_port_in_use_names_the_remedy(engine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        frontend = OpenAIFrontend(OpenAISettings(port=port))
        with pytest.raises(StartupError) as caught:
            await frontend.serve(engine, asyncio.Event())
    assert str(caught.value) == f"port {port} on 127.0.0.1 is in use; choose another with --openai.port"


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_a_host_that_is_not_here_names_the_remedy(host):
    with pytest.raises(StartupError, match=r"--openai\.host"):
        listen(host, 0)


def test_ipv6_addresses_make_valid_urls():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with listen("::1", 0) as sock:
        assert re.fullmatch(r"http://\[::1\]:\d+", url_of(sock))


async def test_tokens_are_sent_at_once():
    with listen("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()):
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_running_streams_finish_and_new_work_is_refused(server, engine):
    engine.gate, engine.gate_after = asyncio.Event(), 2
    async with httpx.AsyncClient(timeout=10) as client, server.connect() as (reader, writer):
        streaming = asyncio.create_task(client.post(f"{server.url}/v1/completions", json=body()))
        await until(lambda: engine.waiting == 1)
        writer.write(raw_request("/v1/completions", body())[:-1])
        server.stop.set()
        writer.write(raw_request("/v1/completions", body())[-1:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")

        async def refused():
            try:
                (await asyncio.open_connection("127.0.0.1", server.port))[1].close()
            except ConnectionError:
                return True
            return False

        async with asyncio.timeout(5):
            while not await refused():  # noqa: ASYNC110 - nothing tells when the listener closes
                await asyncio.sleep(0.01)
        engine.gate.set()
        *events, done = events_of((await streaming).text)
        assert done == "[DONE]"
        assert "".join(event["choices"][0]["text"] for event in events) == "one two " * 3
    await asyncio.wait_for(server.running, 5)


async def test_stopping_closes_idle_connections_at_once_and_others_after_their_reply(server, engine):
    engine.gate, engine.gate_after = asyncio.Event(), 2
    async with server.connect() as (idle, idle_writer), server.connect() as (reader, writer):
        idle_writer.write(raw_request("/health", b"", method="GET"))
        await idle.readuntil(b'"ready"}')
        writer.write(raw_request("/v1/completions", body()))
        await until(lambda: engine.waiting == 1)
        server.stop.set()
        async with asyncio.timeout(5):
            assert await idle.read() == b""
            engine.gate.set()
            text = (await reader.read()).decode()
    assert text.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
    await asyncio.wait_for(server.running, 5)


async def test_everything_can_be_served_under_a_path(engine):
    async with Http(engine, OpenAISettings(root_path="/llm/a")) as http:
        for path in ("/health", "/v1/models", "/metrics"):
            assert (await http.get(f"/llm/a{path}")).status_code == 200
        assert all(route.path.startswith("/llm/a/") for route in http.app.app.routes)
        for path in ("llm", "/llm/", "/l lm", "/{x}"):
            with pytest.raises(ValueError, match="root_path"):
                OpenAISettings(root_path=path)


async def test_a_full_queue_says_when_to_come_back(settings):
    reached, go = threading.Event(), threading.Event()

    def hold(plan):
        if plan.step_id > 1:
            reached.set()
            assert go.wait(20)

    engine = await start_engine(FakeExecutor(on_step=hold), max_waiting=2)
    ask = {"model": "fake", "prompt": "hello", "max_tokens": 2, "ignore_eos": True}
    async with Http(engine, settings) as http:
        first = asyncio.create_task(http.complete(**ask))
        await until(reached.is_set)
        waiting = [asyncio.create_task(http.complete(**ask, stream=stream)) for stream in (False, True)]
        await until(lambda: engine.stats().waiting == 2)
        for stream in (False, True):
            response = await http.complete(**ask, stream=stream)
            assert_error(response, 429, kind="rate_limit_error", code="queue_full")
            assert response.headers["retry-after"] == "1"
        assert (await http.get("/health")).status_code == 200
        go.set()
        for answer in (first, *waiting):
            assert (await answer).status_code == 200
        assert (await http.complete(**ask)).status_code == 200
    await engine.stop()


async def test_streams_that_the_engine_ends_get_an_error_event(server, engine):
    engine.gate, engine.gate_after = asyncio.Event(), 2
    async with httpx.AsyncClient(timeout=10) as client:
        streaming = asyncio.create_task(client.post(f"{server.url}/v1/completions", json=body()))
        await until(lambda: engine.waiting == 1)
        server.stop.set()
        engine.end_all(EngineStoppedError("the server was stopped"))
        assert events_of((await streaming).text)[-1]["error"]["message"] == "the server was stopped"
    await asyncio.wait_for(server.running, 5)


async def test_idle_connections_live_long(settings):
    assert settings.keep_alive_s >= 75


def test_the_plugin_registers_the_frontend(monkeypatch):
    for name in ("_routes", "_tool_formats", "_reasoning_formats"):  # which the host gives before anything is made
        monkeypatch.setattr(plugin, name, SimpleNamespace(create=None), raising=False)
    found = {}
    plugin.corelm_register_frontends(lambda name, factory, **options: found.update({name: (factory, options)}))
    factory, options = found["openai"]
    assert options["settings"] is OpenAISettings
    assert all(field.description for field in OpenAISettings.model_fields.values())
    assert isinstance(factory(FrontendContext(settings=OpenAISettings())), OpenAIFrontend)
