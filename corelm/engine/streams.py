"""The outputs of one request on their way to its consumer."""

import asyncio
from collections.abc import AsyncIterator, Callable

from corelm.errors import CorelmError
from corelm.outputs import RequestOutput


def merge(outputs: list[RequestOutput]) -> RequestOutput:
    """Consecutive outputs of a request as one."""
    last = outputs[-1]
    if len(outputs) == 1:
        return last
    return RequestOutput(
        request_id=last.request_id,
        text="".join(output.text for output in outputs),
        token_ids=tuple(token for output in outputs for token in output.token_ids),
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        prompt_tokens=last.prompt_tokens,
        cached_tokens=last.cached_tokens,
        completion_tokens=last.completion_tokens,
    )


class AsyncStream:
    """Implements `corelm.api.ResultStream`. Lives on the event loop; one consumer at a time.

    Ends exactly once: with an output that has a finish reason, or with an error. What is put later is ignored.
    """

    def __init__(self, request_id: str, on_abort: Callable[["AsyncStream"], None]) -> None:
        self.request_id = request_id
        self.finished = False
        self.seq_id: int | None = None
        """The sequence behind the stream, once it is queued."""
        self._usage = (0, 0)
        self._on_abort = on_abort
        self._pending: list[RequestOutput] = []
        self._error: CorelmError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._only_end = False

    def put(self, output: RequestOutput) -> None:
        """Add an output; one with a finish reason ends the stream."""
        if self.finished:
            return
        self._pending.append(output)
        self._usage = (output.prompt_tokens, output.completion_tokens)
        self.finished = output.finish_reason is not None
        if self.finished or not self._only_end:
            self._wake()

    def put_abort(self) -> None:
        """End the stream as aborted."""
        prompt_tokens, completion_tokens = self._usage
        self.put(
            RequestOutput(
                request_id=self.request_id,
                text="",
                token_ids=(),
                finish_reason="abort",
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
            )
        )

    def fail(self, error: CorelmError) -> None:
        """End the stream with an error, raised once what is pending was read."""
        if self.finished:
            return
        self.finished = True
        self._error = error
        self._wake()

    def abort(self) -> None:
        """End the request. Never waits; does nothing once the request has ended."""
        if not self.finished:
            self._on_abort(self)

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        """All outputs. Leaving the loop early aborts the request."""
        try:
            while True:
                try:
                    output = await anext(self)
                except StopAsyncIteration:
                    return
                yield output
        finally:
            self.abort()

    async def __anext__(self) -> RequestOutput:
        if not self._pending and not self.finished:
            await self._wait()
        return self._take()

    async def result(self) -> RequestOutput:
        """Wait for the end and return everything not read yet, as one output. Raises the request's error."""
        self._only_end = True
        if not self.finished:
            await self._wait()
        if self._error is not None:
            self._pending.clear()
        try:
            return self._take()
        except StopAsyncIteration:
            raise CorelmError(f"request {self.request_id!r} has ended and its outputs were read already") from None

    def _take(self) -> RequestOutput:
        if self._pending:
            outputs, self._pending = self._pending, []
            return merge(outputs)
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("a stream has one consumer at a time")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
