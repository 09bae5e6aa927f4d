"""Which requests are alive, and what the loop has to be told about them. Lives on the event loop."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from corelm.engine.engine import Emission
from corelm.engine.request import Request
from corelm.engine.streams import AsyncStream
from corelm.errors import CorelmError, DuplicateRequestError
from corelm.outputs import RequestOutput


class RequestTracker:
    """Connects streams, known by the client's request id, with requests, known by a number never used again.

    So a late abort cannot hit a new request that uses the same id.
    """

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()
        """Requests that ended, by finish reason or ``error``."""
        self._streams: dict[str, AsyncStream] = {}
        self._queued: dict[int, AsyncStream] = {}
        self._new: dict[int, Request] = {}
        self._aborted: list[int] = []
        self._event = asyncio.Event()

    @property
    def num_new(self) -> int:
        """Requests that no step has seen yet."""
        return len(self._new)

    def open(self, request_id: str, choices: int = 1) -> AsyncStream:
        """A stream for a request that is about to be prepared. Refuses an id that is alive."""
        if request_id in self._streams:
            raise DuplicateRequestError(f"request id {request_id!r} is in use", param="request_id")
        stream = self._streams[request_id] = AsyncStream(request_id, choices, self._abort)
        return stream

    def discard(self, stream: AsyncStream) -> None:
        """Forget a stream whose request was refused."""
        if self._streams.get(stream.request_id) is stream:
            del self._streams[stream.request_id]

    def enqueue(self, stream: AsyncStream, request: Request) -> None:
        """Hand a prepared request to the loop, unless its stream has ended meanwhile."""
        if stream.finished:
            return
        stream.number = request.number
        self._new[request.number] = request
        self._queued[request.number] = stream
        self._event.set()

    def abort(self, request_id: str) -> None:
        """End a request by its id; unknown and finished ids are ignored."""
        if (stream := self._streams.get(request_id)) is not None:
            stream.abort()

    async def wait(self, seconds: float) -> None:
        """Return when there is something to take, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return

    def take(self) -> tuple[list[Request], list[int]]:
        """New requests, and numbers of aborted ones, since the last call."""
        new, aborted = list(self._new.values()), self._aborted
        self._new, self._aborted = {}, []
        self._event.clear()
        return new, aborted

    def deliver(self, emissions: Iterable[Emission]) -> None:
        """Put each output or error on its stream."""
        for number, emission in emissions:
            if (stream := self._queued.get(number)) is None:
                continue
            if isinstance(emission, RequestOutput):
                stream.put(emission)
                if stream.finished:
                    self._close(stream, emission.finish_reason or "")
            else:
                stream.fail(emission)
                self._close(stream, "error")

    def fail_all(self, error: CorelmError) -> None:
        """End every stream with `error`."""
        self._new.clear()
        for stream in list(self._streams.values()):
            own = type(error)(*error.args)  # one each: a traceback grows with every raise
            own.__cause__ = error.__cause__
            stream.fail(own)
            self._close(stream, "error")

    def _abort(self, stream: AsyncStream) -> None:
        stream.put_abort()
        self._close(stream, "abort")
        if stream.number is not None and self._new.pop(stream.number, None) is None:
            self._aborted.append(stream.number)
            self._event.set()

    def _close(self, stream: AsyncStream, reason: str) -> None:
        self.finished[reason] += 1
        self.discard(stream)
        if stream.number is not None:
            self._queued.pop(stream.number, None)
