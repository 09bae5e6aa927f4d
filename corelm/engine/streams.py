"""The outputs of one request on their way to its consumer."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec

from corelm.errors import CorelmError
from corelm.outputs import RequestOutput


def merge(outputs: list[RequestOutput]) -> RequestOutput:
    """Consecutive outputs of a choice as one."""
    last = outputs[-1]
    if len(outputs) == 1:
        return last
    return msgspec.structs.replace(
        last,
        text="".join(output.text for output in outputs),
        token_ids=tuple(token for output in outputs for token in output.token_ids),
        logprobs=tuple(entry for output in outputs for entry in output.logprobs or ())
        if _any_logprobs(outputs)
        else None,
        prompt_logprobs=outputs[0].prompt_logprobs,
    )


def _any_logprobs(outputs: list[RequestOutput]) -> bool:
    return any(output.logprobs is not None for output in outputs)


class AsyncStream:
    """Implements `corelm.api.ResultStream`. Lives on the event loop; one consumer at a time.

    Ends exactly once: with an output that has a finish reason, or with an error. What is put later is ignored.
    """

    def __init__(self, request_id: str, choices: int, on_abort: Callable[["AsyncStream"], None]) -> None:
        self.request_id = request_id
        self.finished = False
        self.number: int | None = None
        """Of the request behind the stream, once it is queued."""
        self._on_abort = on_abort
        self._pending: dict[int, list[RequestOutput]] = {}
        """By choice, in the order of their first outputs that were not read."""
        self._unfinished = set(range(choices))
        self._last: dict[int, RequestOutput] = {}
        self._error: CorelmError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._only_end = False

    def put(self, output: RequestOutput) -> None:
        """Add an output; the stream ends when each choice has its finish reason."""
        if self.finished:
            return
        self._pending.setdefault(output.index, []).append(output)
        self._last[output.index] = output
        if output.finish_reason is not None:
            self._unfinished.discard(output.index)
            self.finished = not self._unfinished
        if self.finished or not self._only_end:
            self._wake()

    def put_abort(self) -> None:
        """End every choice that has not ended as aborted."""
        for index in sorted(self._unfinished):
            last = self._last.get(index)
            self.put(
                RequestOutput(
                    request_id=self.request_id,
                    index=index,
                    text="",
                    token_ids=(),
                    finish_reason="abort",
                    prompt_tokens=last.prompt_tokens if last else 0,
                    completion_tokens=last.completion_tokens if last else 0,
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
        """`results` of a request with one choice."""
        (output,) = await self.results()
        return output

    async def results(self) -> list[RequestOutput]:
        """Wait for the end and return everything not read yet, one output for each choice in order.

        Raises the request's error.
        """
        self._only_end = True
        if not self.finished:
            await self._wait()
        if self._error is not None:
            self._pending.clear()
        if not self._pending:
            try:
                self._take()
            except StopAsyncIteration:
                raise CorelmError(f"request {self.request_id!r} has ended and its outputs were read already") from None
        pending, self._pending = self._pending, {}
        return [merge(pending[index]) for index in sorted(pending)]

    def _take(self) -> RequestOutput:
        if self._pending:
            return merge(self._pending.pop(next(iter(self._pending))))
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
