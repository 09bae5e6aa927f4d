"""A reply that is streamed."""

import asyncio

from litestar.types import Receive, Scope, Send

from corelm_openai.generation.choices import Choices
from corelm_openai.generation.replies import Reply
from corelm_openai.http.disconnect import ClientLeftError, until_disconnect
from corelm_openai.http.errors import describe
from corelm_openai.http.sse import start


class EventStream:
    """An ASGI app: starts the requests of a reply and streams what they produce.

    The response starts with the first output, so that whatever fails before has a status of its own. Later an
    error is the last event. The requests end with the connection.
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
                data, more = self._reply.failure(describe(error)), False
            if data:
                await self._send(send, data, more=more)
            await asyncio.sleep(0)  # outputs that are always ready must not keep the event loop to themselves

    async def _next(self) -> bytes:
        """The next events; those of the last outputs come with the ending."""
        batch = await self._choices.read()
        if self._reply.shows_tokens:
            await self._reply.prepare(output for _, output in batch)
        events = self._reply.events(batch)
        return events + self._reply.ending() if self._choices.finished else events

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            await send(start())
        await send({"type": "http.response.body", "body": data, "more_body": more})
