"""One client's connection."""

import asyncio
from typing import cast

import h11
import msgspec
from litestar.exceptions import ClientException
from uvicorn.protocols.http.h11_impl import H11Protocol

from corelm_openai.http.errors import describe
from corelm_openai.http.request_ids import new_id

MAX_HEAD_BYTES = 2**16
"""Most bytes of a request line and its headers, and of what is kept of a next request while one is answered."""
LINGER_S = 2.0
"""Seconds that a client which reads nothing gets once the server is stopping."""


class _Deadline:
    """Cuts a connection when it passes."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        return self._timer is not None

    def start(self, seconds: float) -> None:
        self.stop()
        self._timer = self._loop.call_later(seconds, self._transport.abort)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connection(H11Protocol):
    """Cuts a client that stops sending its request, or that does not read its reply.

    A request's head, and the rest of a body that nobody reads, must come in `io_timeout` seconds. The routes time the
    body that they read.
    """

    io_timeout: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._sending = _Deadline(self.transport, self.loop)
        self._reading = _Deadline(self.transport, self.loop)
        self._sending.start(self.io_timeout)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._replying:
            if not self._sending.runs:
                self._sending.start(self.io_timeout)
            return
        self._sending.stop()
        if not self.cycle.more_body and len(self.conn.trailing_data[0]) < MAX_HEAD_BYTES:
            self.flow.resume_reading()  # uvicorn pauses at the next request, and would not notice the client leave

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading.start(self.io_timeout)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._sending.stop()
        self._reading.stop()

    def shutdown(self) -> None:
        super().shutdown()
        self.io_timeout = min(self.io_timeout, LINGER_S)
        if self._reading.runs:
            self._reading.start(self.io_timeout)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else the nonsense is in a body that was answered
            body = msgspec.json.encode(describe(ClientException(msg)).body)
            headers = [("content-type", "application/json"), ("connection", "close"), ("x-request-id", new_id())]
            head = h11.Response(status_code=400, headers=[*headers, ("content-length", str(len(body)))])
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _should_upgrade(self) -> bool:
        return False  # as the standard allows; uvicorn would log two warnings for each client that offers HTTP/2

    @property
    def _replying(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
