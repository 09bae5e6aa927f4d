"""Start, stop and drain."""

import asyncio
import logging
import re
import signal
import socket

import httpx
import pytest
from corelm_openai import plugin
from corelm_openai.frontend import OpenAIFrontend
from corelm_openai.http.server import listen, url_of
from corelm_openai.settings import OpenAISettings
from openai_http import events_of, raw_request, until

from corelm.api import EngineStoppedError, FrontendContext, StartupError


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


def test_the_plugin_registers_the_frontend():
    found = {}
    plugin.corelm_register_frontends(lambda name, factory, **options: found.update({name: (factory, options)}))
    factory, options = found["openai"]
    assert options["settings"] is OpenAISettings
    assert all(field.description for field in OpenAISettings.model_fields.values())
    assert isinstance(factory(FrontendContext(settings=OpenAISettings())), OpenAIFrontend)
