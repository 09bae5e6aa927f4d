"""Clients and servers for the tests."""

import asyncio
import contextlib
import json

import httpx
from corelm_openai.app import create_app
from corelm_openai.http.server import listen, run, url_of
from openapi_checks import Checked


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


def events_of(text):
    """The events of a stream, decoded; each must be one line of JSON after ``data:`` and an empty line."""
    lines = text.splitlines()
    assert lines[1::2] == [""] * (len(lines) // 2)
    assert all(line.startswith("data: ") for line in lines[::2])
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines[::2]]


def assert_error(response, status, *, param=..., code=..., kind="invalid_request_error"):
    """`response` is an error in OpenAI's shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert response.json().keys() == {"error"}
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    assert not any(mark in error["message"] for mark in ("Traceback", 'File "', ".py", "object at 0x"))
    assert error["type"] == kind
    if param is not ...:
        assert error["param"] == param
    if code is not ...:
        assert error["code"] == code
    return error["message"]


class Http(httpx.AsyncClient):
    """Talks to the application in this process and this event loop."""

    def __init__(self, engine, settings, stop=None):
        self.app = create_app(engine, settings, stop or asyncio.Event())
        self.checked = Checked(self.app, settings.root_path)
        super().__init__(
            transport=httpx.ASGITransport(app=self.checked, raise_app_exceptions=False), base_url="http://test"
        )

    async def __aexit__(self, *exc):
        await super().__aexit__(*exc)
        self.checked.check()

    async def complete(self, **body):
        return await self.post("/v1/completions", json={"model": "fake", "prompt": "a b", **body})

    async def chat(self, **body):
        messages = [{"role": "user", "content": "a b"}]
        return await self.post("/v1/chat/completions", json={"model": "fake", "messages": messages, **body})


class RealServer:
    """uvicorn on a port of its own."""

    def __init__(self, engine, settings):
        self.engine = engine
        self.settings = settings
        self.stop = asyncio.Event()

    async def __aenter__(self):
        self.sock = listen(self.settings.host, self.settings.port)
        self.url = url_of(self.sock)
        self.port = self.sock.getsockname()[1]
        self.checked = Checked(create_app(self.engine, self.settings, self.stop), self.settings.root_path)
        self.running = asyncio.create_task(run(self.checked, self.sock, self.settings, self.stop))
        return self

    async def __aexit__(self, *exc):
        self.stop.set()
        async with asyncio.timeout(10):
            await self.running
        self.sock.close()
        self.checked.check()

    @contextlib.asynccontextmanager
    async def connect(self):
        """A raw connection: reader and writer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def raw_request(path, body, *, method="POST", headers=()):
    """The bytes of a request with a JSON body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: test",
        "content-type: application/json",
        f"content-length: {len(data)}",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + data
