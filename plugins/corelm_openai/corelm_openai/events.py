"""Server-sent events."""

import asyncio
from typing import Any

import msgspec
from litestar.types import Receive, Scope, Send

from corelm_openai.choices import Choices
from corelm_openai.disconnect import ClientLeftError, until_disconnect
from corelm_openai.errors import describe
from corelm_openai.replies import Reply

DONE = b"data: [DONE]\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_LINE_ENDS = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "\u0085\u2028\u2029"}
"""Line ends to some clients, though neither JSON nor server-sent events count them as such."""

_encode = msgspec.json.Encoder().encode


def event(data: Any) -> bytes:
    """One event: a line of JSON without any character that a client could take for a line end."""
    line: bytes = _encode(data)
    if not line.isascii():
        for char, escaped in _LINE_ENDS.items():
            line = line.replace(char, escaped)
    return b"data: %b\n\n" % line


class EventStream:
    """An ASGI app: starts the requests of a reply and streams what they produce.

    The response starts with the first output, so that whatever fails before has a status of its own. Later an
    error is one event, after which the stream ends without ``[DONE]``. The requests end with the connection.
    """

    def __init__(self, choices: Choices, reply: Reply) -> None:
        self._choices = choices
        self._reply = reply
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._stream(send))
        except ClientLeftError:
            return
        finally:
            self._choices.close()

    async def _stream(self, send: Send) -> None:
        await self._choices.start()
        more = True
        while more:
            try:
                data = await self._next()
                more = not self._choices.finished
            except Exception as error:
                if not self._started:
                    raise
                data, more = event(describe(error).body), False
            if data:
                await self._send(send, data, more=more)
            await asyncio.sleep(0)  # outputs that are always ready must not keep the event loop to themselves

    async def _next(self) -> bytes:
        """The next events; those of the last outputs come with the ending."""
        batch = await self._choices.read()
        if self._reply.shows_tokens:
            await self._reply.prepare(output for _, output in batch)
        events = [event(chunk) for output in batch for chunk in self._reply.chunks(*output)]
        if self._choices.finished:
            usage = self._reply.usage_chunk()
            events += [event(usage), DONE] if usage else [DONE]
        return b"".join(events)

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": data, "more_body": more})
