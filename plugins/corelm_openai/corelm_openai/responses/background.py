"""Responses that are made while no client waits."""

import asyncio
from collections.abc import AsyncIterator, Callable

from litestar.types import Receive, Scope, Send

from corelm.api import EngineStoppedError
from corelm_openai.generation.choices import Choices
from corelm_openai.http.disconnect import ClientLeftError, unless, until_disconnect
from corelm_openai.http.errors import describe
from corelm_openai.http.sse import start
from corelm_openai.responses.reply import ResponseReply


class BackgroundRun:
    """Reads what the engine makes of a response, and tells of it.

    It ends when the server stops: nobody could ask for the response then.
    """

    def __init__(self, choices: Choices, reply: ResponseReply, *, keeps_events: bool) -> None:
        self.reply = reply
        self.keeps_events = keeps_events
        """Whether `follow` is of use."""
        self.ended = False
        self._choices = choices
        self._events: list[bytes] = []
        """By sequence number."""
        self._changed = asyncio.Event()
        self._on_change: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self._events))

    async def queue(self) -> None:
        """Begin. Raises what `EngineClient.generate` raises."""
        try:
            await self._choices.start()
        except BaseException:
            self._choices.close()
            raise
        self._tell(self.reply.tell_opening())

    def begin(self, stop: asyncio.Event, on_change: Callable[[], None]) -> None:
        """Go on by itself. `on_change` is called whenever the response has another status."""
        self._on_change = on_change
        self._task = asyncio.create_task(self._run(stop))

    def cancel(self) -> None:
        """End it as cancelled. Never waits; does nothing once it has ended."""
        self._end(self.reply.tell_cancelled)
        if self._task is not None:
            self._task.cancel()

    async def follow(self, first: int) -> AsyncIterator[bytes]:
        """The events from a sequence number on, until the last one."""
        while True:
            told = self._events[first:]
            first += len(told)
            if told:
                yield b"".join(told)
            elif self.ended:
                return
            else:
                await self._changed.wait()

    async def _run(self, stop: asyncio.Event) -> None:
        stopping = EngineStoppedError("The server is shutting down.")
        try:
            await unless(stop.wait(), stopping, self._read())
        except Exception as error:  # noqa: BLE001 (told to whoever asks)
            problem = describe(error)
            self._end(lambda: self.reply.tell_failure(problem))

    async def _read(self) -> None:
        while not self._choices.finished:
            batch = await self._choices.read()
            if self.reply.shows_tokens:
                await self.reply.prepare(output for _, output in batch)
            if self.ended:
                return
            before = self.reply.response.status
            self._tell(self.reply.tell(batch))
            if self.reply.response.status != before:
                self._on_change()
            await asyncio.sleep(0)  # outputs that are always ready must not keep the event loop to themselves
        self._end(self.reply.tell_end)

    def _end(self, tell: Callable[[], list[bytes]]) -> None:
        if self.ended:
            return
        self.ended = True
        self._choices.close()
        self._tell(tell())
        self._on_change()

    def _tell(self, events: list[bytes]) -> None:
        if self.keeps_events:
            self._events += events
        self._changed.set()
        self._changed = asyncio.Event()


class FollowedRun:
    """An ASGI app: streams the events of a run, which does not end with the connection."""

    def __init__(self, run: BackgroundRun, first: int) -> None:
        self._run = run
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._stream(send))
        except ClientLeftError:
            return

    async def _stream(self, send: Send) -> None:
        await send(start())
        async for data in self._run.follow(self._first):
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
