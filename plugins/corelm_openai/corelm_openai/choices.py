"""The engine requests behind one HTTP request, one per choice."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from corelm.api import (
    EngineClient,
    InvalidRequestError,
    Prompt,
    RequestFailedError,
    RequestOutput,
    ResultStream,
    SamplingParams,
)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What an HTTP request asks of the engine. Choice i answers prompt ``i // len(params)``."""

    prompts: Sequence[Prompt]
    params: Sequence[SamplingParams]
    """One per choice of a prompt."""
    priority: int
    tenant: str | None
    max_tokens_name: str = "max_tokens"
    """What the client calls `SamplingParams.max_tokens`."""


class ChoiceOutput(NamedTuple):
    """An output and the index of the choice it belongs to."""

    choice: int
    output: RequestOutput


class Choices:
    """Starts the requests of `job`, reads their outputs and, in `close`, ends them all."""

    def __init__(self, engine: EngineClient, job: Job, reply_id: str) -> None:
        self._engine = engine
        self._job = job
        size = len(job.prompts) * len(job.params)
        self._ids = [f"{reply_id}-{index}" for index in range(size)]
        self._streams: list[ResultStream] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ready: asyncio.Queue[ChoiceOutput | Exception] = asyncio.Queue(size)
        self._unfinished = size

    async def start(self) -> None:
        """Queue every request. Raises what `EngineClient.generate` raises."""
        ids = iter(self._ids)
        job = self._job
        try:
            for prompt in job.prompts:
                for params in job.params:
                    stream = await self._engine.generate(
                        prompt, params, request_id=next(ids), priority=job.priority, tenant=job.tenant
                    )
                    self._streams.append(stream)
        except InvalidRequestError as error:
            if error.param == "max_tokens":
                error.param = job.max_tokens_name
            raise

    @property
    def finished(self) -> bool:
        """Whether every choice was read to its end."""
        return self._unfinished == 0

    async def read(self) -> list[ChoiceOutput]:
        """Wait for outputs of any choices. Raises the error of the first choice that fails."""
        batch = await self._read_only() if len(self._streams) == 1 else await self._read_any()
        self._unfinished -= sum(output.finish_reason is not None for _, output in batch)
        return batch

    async def results(self) -> list[RequestOutput]:
        """Start every request, wait for all of them and return the whole output of each."""
        await self.start()
        if len(self._streams) == 1:
            return [_checked(await self._streams[0].result())]
        waiting = [asyncio.ensure_future(stream.result()) for stream in self._streams]
        try:
            return [_checked(output) for output in await asyncio.gather(*waiting)]
        finally:
            for task in waiting:
                task.cancel()

    def close(self) -> None:
        """End whatever still runs. Never waits; may be called at any time."""
        for task in self._tasks:
            task.cancel()
        for request_id in self._ids:
            self._engine.abort(request_id)

    async def _read_only(self) -> list[ChoiceOutput]:
        return [ChoiceOutput(0, await _next(self._streams[0]))]

    async def _read_any(self) -> list[ChoiceOutput]:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._forward(*item)) for item in enumerate(self._streams)]
        batch: list[ChoiceOutput] = []
        while not (batch and self._ready.empty()):
            item = await self._ready.get()
            if isinstance(item, ChoiceOutput):
                batch.append(item)
            elif batch:  # what came before the error is read first
                self._ready.put_nowait(item)
                break
            else:
                raise item
        return batch

    async def _forward(self, index: int, stream: ResultStream) -> None:
        """Move outputs to `_ready`, which is short: what is not read yet stays, merged, in the stream."""
        try:
            finished = False
            while not finished:
                output = await _next(stream)
                finished = output.finish_reason is not None
                await self._ready.put(ChoiceOutput(index, output))
        except Exception as error:  # noqa: BLE001 (raised again by the reader)
            await self._ready.put(error)


async def _next(stream: ResultStream) -> RequestOutput:
    try:
        return _checked(await anext(stream))
    except StopAsyncIteration:
        raise RequestFailedError("The request ended without a finish reason.") from None


def _checked(output: RequestOutput) -> RequestOutput:
    if output.finish_reason == "abort":
        raise RequestFailedError("The request was aborted.")
    return output
