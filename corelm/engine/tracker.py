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
    """Connects streams, known by the client's request id, with sequences, known by a number never used again.

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

    def open(self, request_id: str) -> AsyncStream:
        """A stream for a request that is about to be prepared. Refuses an id that is alive."""
        if request_id in self._streams:
            raise DuplicateRequestError(f"request id {request_id!r} is in use", param="request_id")
        stream = self._streams[request_id] = AsyncStream(request_id, self._abort)
        return stream

    def discard(self, stream: AsyncStream) -> None:
        """Forget a stream whose request was refused."""
        if self._streams.get(stream.request_id) is stream:
            del self._streams[stream.request_id]

    def enqueue(self, stream: AsyncStream, request: Request) -> None:
        """Hand a prepared request to the loop, unless its stream has ended meanwhile."""
        if stream.finished:
            return
        stream.seq_id = request.seq_id
        self._new[request.seq_id] = request
        self._queued[request.seq_id] = stream
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
        """New requests, and seq_ids of aborted ones, since the last call."""
        new, aborted = list(self._new.values()), self._aborted
        self._new, self._aborted = {}, []
        self._event.clear()
        return new, aborted

    def deliver(self, emissions: Iterable[Emission]) -> None:
        """Put each output or error on its stream."""
        for seq_id, emission in emissions:
            if (stream := self._queued.get(seq_id)) is None:
                continue
            if isinstance(emission, RequestOutput):
                stream.put(emission)
                if emission.finish_reason is not None:
                    self._close(stream, emission.finish_reason)
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
        if stream.seq_id is not None and self._new.pop(stream.seq_id, None) is None:
            self._aborted.append(stream.seq_id)
            self._event.set()

    def _close(self, stream: AsyncStream, reason: str) -> None:
        self.finished[reason] += 1
        self.discard(stream)
        if stream.seq_id is not None:
            self._queued.pop(stream.seq_id, None)
