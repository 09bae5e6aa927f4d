"""Listening and running uvicorn inside the engine's event loop."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any, cast

import uvicorn

from corelm.api import StartupError
from corelm_openai.http.connection import LINGER_S, MAX_HEAD_BYTES, Connection
from corelm_openai.settings import OpenAISettings

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; clients can connect from now on. Raises `StartupError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise StartupError(f"{host} is not an address of this machine; choose another with --openai.host") from error
    except OSError as error:
        raise StartupError(_remedy(host, port, error)) from error
    # Connections inherit this. asyncio would not set it, and each token could wait 40 ms for the client's ACK.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _remedy(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use; choose another with --openai.port"
        case errno.EACCES:
            return f"port {port} on {host} is not allowed for this user; choose one above 1023 with --openai.port"
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine; choose another with --openai.host"
    return f"cannot listen on port {port} of {host} ({error.strerror}); see --openai.host and --openai.port"


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    """The address of a listening socket as a URL."""
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def run(
    app: Any, sock: socket.socket, settings: OpenAISettings, stop: asyncio.Event, tls: ssl.SSLContext | None = None
) -> None:
    """Serve an ASGI app on `sock` until `stop` is set; then refuse connections and wait for running replies."""
    protocol = type("TimedConnection", (Connection,), {"io_timeout": settings.io_timeout_s})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_context_factory=None if tls is None else lambda config, default: tls,
    )
    await _Server(config, stop).serve(sockets=[sock])


class _Server(uvicorn.Server):
    """uvicorn as a guest: signals and the end of serving are the host's business."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event) -> None:
        super().__init__(config)
        self._stop = stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        cutting = asyncio.create_task(self._cut_lingering())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut_lingering(self) -> None:
        """Cut the connections that are left when every reply is written, so that shutting down ends."""
        while self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)
        await asyncio.sleep(LINGER_S)
        for connection in self.server_state.connections:
            cast("Connection", connection).transport.abort()
