"""The engine requests behind one HTTP request, one per prompt."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from corelm.api import (
    EngineClient,
    Prompt,
    RequestFailedError,
    RequestOptions,
    RequestOutput,
    ResultStream,
    SamplingParams,
)
from corelm_openai.http.errors import renaming


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What an HTTP request asks of the engine. Choice i answers prompt ``i // params.n``."""

    prompts: Sequence[Prompt]
    params: SamplingParams
    options: RequestOptions
    names: Mapping[str, str] = {}
    """What the client calls parameters that have another name in corelm."""
    echo: bool = False
    """Whether each choice begins with its prompt."""
    prompt_logprobs: int | None = None
    """How many alternatives to each prompt token the reply shows, if it shows them."""

    @property
    def shows_tokens(self) -> bool:
        """Whether the reply shows what tokens stand for."""
        return self.echo or self.params.logprobs is not None or self.params.prompt_logprobs is not None

    async def engine_prompts(self, engine: EngineClient) -> Sequence[Prompt]:
        """The prompts as the engine is given them. Raises what `EngineClient.tokenize` does."""
        return self.prompts


class ChoiceOutput(NamedTuple):
    """An output and the index of the choice it belongs to."""

    choice: int
    output: RequestOutput


class Choices:
    """Starts the requests of `job`, reads their outputs and, in `close`, ends them all."""

    def __init__(self, engine: EngineClient, job: Job, reply_id: str) -> None:
        self._engine = engine
        self._job = job
        self.request_ids = [f"{reply_id}-{index}" for index in range(len(job.prompts))]
        """Those of the engine's requests."""
        self._streams: list[ResultStream] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._unfinished = len(job.prompts) * job.params.n
        self._ready: asyncio.Queue[ChoiceOutput | Exception] = asyncio.Queue(self._unfinished)

    async def start(self) -> None:
        """Queue every request. Raises what `EngineClient.generate` raises."""
        job = self._job
        with renaming(job.names):
            prompts = await job.engine_prompts(self._engine)
            for prompt, request_id in zip(prompts, self.request_ids, strict=True):
                stream = await self._engine.generate(prompt, job.params, request_id=request_id, options=job.options)
                self._streams.append(stream)

    @property
    def finished(self) -> bool:
        """Whether every choice was read to its end."""
        return self._unfinished == 0

    async def read(self) -> list[ChoiceOutput]:
        """Wait for outputs of any choices. Raises the error of the first choice that fails."""
        with renaming(self._job.names):
            batch = await self._read_only() if len(self._streams) == 1 else await self._read_any()
        self._unfinished -= sum(output.finish_reason is not None for _, output in batch)
        return batch

    async def results(self) -> list[RequestOutput]:
        """Start every request, wait for all of them and return the whole output of each choice."""
        await self.start()
        waiting = [asyncio.ensure_future(stream.results()) for stream in self._streams]
        try:
            with renaming(self._job.names):
                return [_checked(output) for outputs in await asyncio.gather(*waiting) for output in outputs]
        finally:
            for task in waiting:
                task.cancel()

    def close(self) -> None:
        """End whatever still runs. Never waits; may be called at any time."""
        for task in self._tasks:
            task.cancel()
        for request_id in self.request_ids:
            self._engine.abort(request_id)

    async def _read_only(self) -> list[ChoiceOutput]:
        output = await _next(self._streams[0])
        return [ChoiceOutput(output.index, output)]

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

    async def _forward(self, number: int, stream: ResultStream) -> None:
        """Move outputs to `_ready`, which is short: what is not read yet stays, merged, in the stream."""
        n = self._job.params.n
        try:
            unfinished = n
            while unfinished:
                output = await _next(stream)
                unfinished -= output.finish_reason is not None
                await self._ready.put(ChoiceOutput(number * n + output.index, output))
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
