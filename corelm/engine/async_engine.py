"""The engine behind the event loop: what frontends and library users talk to."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from corelm.contracts.executor import ExecutorInfo, Progress
from corelm.contracts.frontend import EngineStatus, ModelCard, Prompt, RequestOptions
from corelm.contracts.observer import EngineInfo, Observer
from corelm.engine.embedding import embedding_of
from corelm.engine.engine import Emission, Engine, EngineSnapshot
from corelm.engine.observing import Observing
from corelm.engine.request import Request
from corelm.engine.stats_log import StatsLog
from corelm.engine.streams import AsyncStream
from corelm.engine.tracker import RequestTracker
from corelm.engine.worker import Worker
from corelm.errors import (
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    QueueFullError,
    RequestFailedError,
    StartupError,
    describe,
)
from corelm.outputs import Embedding, EngineStats
from corelm.sampling import SamplingParams, StructuredOutput

logger = logging.getLogger("corelm.engine")

IDLE_CHECK_S = 5.0
"""An idle engine looks at the executor's health this often."""
EMPTY_STEP_PAUSE_S = 0.01
"""Pause when requests wait but the policy lets none run."""
SHUTDOWN_S = 5.0
LOADING_SHUTDOWN_S = 0.5

T = TypeVar("T")

TOKENIZER_THREADS = 2
MAX_HUNG_TOKENIZERS = 8


class AsyncEngine:
    """Implements `corelm.api.EngineClient`.

    Steps run in the engine's own thread, tokenising in others, so that nothing a policy, an executor or a large
    prompt does can hold up the event loop. A step that fails, or takes longer than `iteration_timeout_s`, leaves
    the engine errored: every stream ends with the cause.
    """

    def __init__(
        self,
        load: Callable[[Progress], Engine],
        *,
        names: Sequence[str] = (),
        iteration_timeout_s: float = 300.0,
        max_waiting: int = 2048,
        observing: Observing | None = None,
        stats_interval_s: float = 0.0,
    ) -> None:
        """`load` runs in the engine's thread; `names` are what the model answers to, its own name by default."""
        self.status: EngineStatus = "starting"
        self.failure: EngineDeadError | None = None
        self._load = load
        self._names = tuple(names)
        self._created = int(time.time())
        self._iteration_timeout_s = iteration_timeout_s
        self._max_waiting = max_waiting
        self._observing = observing or Observing()
        self._stats_log = StatsLog(stats_interval_s, logger.info)
        self._engine: Engine | None = None
        self._built: Engine | None = None
        """Set in the engine's thread, so that what is loaded is freed even if nobody waits for the loading."""
        self._loading = False
        self._snapshot = EngineSnapshot()
        self._tracker = RequestTracker()
        self._hung_tokenizers = 0
        self._preparing = 0
        """Requests that are being tokenised and checked."""
        self._taken = 0
        """New requests that the running turn took and no snapshot counts yet."""
        self._thread = Worker("corelm-engine")
        self._tokenizing = Worker("corelm-tokenizer", TOKENIZER_THREADS)
        self._loop_task: asyncio.Task[None] | None = None
        self._failed = asyncio.Event()
        self._stopped = False

    @property
    def model(self) -> ModelCard:
        engine = self._engine
        if engine is None:
            return ModelCard(names=self._names, created=self._created, max_model_len=None)
        names = self._names or (engine.model_name,)
        return ModelCard(
            names=names,
            created=self._created,
            max_model_len=engine.intake.max_len,
            embedding_size=engine.info.embedding_size or None,
        )

    @property
    def info(self) -> ExecutorInfo:
        """What the executor said of itself when it was loaded."""
        return self._loaded().info

    @property
    def _description(self) -> EngineInfo:
        return EngineInfo(model=self.model, executor=self.info)

    async def start(self, progress: Progress = lambda fraction, text: None) -> None:
        """Load the model and begin to serve. `progress` is called from another thread. Raises `StartupError`."""
        if self._loading or self._stopped:
            raise StartupError("an engine can be started once")
        self._loading = True
        try:
            self._engine = await asyncio.wrap_future(self._thread.submit(partial(self._build, progress)))
        except StartupError:
            self.status = "errored"
            raise
        except Exception as error:
            self.status = "errored"
            raise StartupError(f"the engine could not be loaded: {describe(error)}") from error
        if self.status != "starting":  # stopped while loading
            return
        self._snapshot = self._engine.snapshot()
        self.status = "ready"
        self._observing.started(self._description)
        self._loop_task = asyncio.create_task(self._run(self._engine), name="corelm-engine-loop")

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        options: RequestOptions = RequestOptions(),
    ) -> AsyncStream:
        """Check and queue a request; see `corelm.api.EngineClient`."""
        self._check_serving()
        prepare = partial(self._loaded().intake.prepare, prompt, params, options=options)
        return await self._queue(prepare, request_id, params.n, params.structured_output)

    async def embed(
        self,
        prompt: Prompt,
        *,
        request_id: str | None = None,
        options: RequestOptions = RequestOptions(),
        truncate_prompt_tokens: int | None = None,
    ) -> Embedding:
        """See `corelm.api.EngineClient`."""
        self._check_serving()
        prepare = partial(self._loaded().intake.prepare_embedding, prompt, truncate_prompt_tokens, options=options)
        return await embedding_of(await self._queue(prepare, request_id))

    def abort(self, request_id: str) -> None:
        """End a request by its id. Never waits; unknown and finished ids are ignored."""
        self._tracker.abort(request_id)

    async def check_health(self) -> None:
        """Return if requests are being served; else raise why not."""
        self._check_serving()

    async def tokenize(self, prompt: Prompt, *, add_special_tokens: bool = True) -> list[int]:
        """See `corelm.api.EngineClient`."""
        read = self._loaded().intake.prompts.token_ids
        return await self._tokenized(partial(read, prompt, add_special_tokens=add_special_tokens))

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """See `corelm.api.EngineClient`."""
        return await self._tokenized(partial(self._loaded().intake.prompts.text, token_ids))

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes]:
        """See `corelm.api.EngineClient`."""
        return list(map(self._loaded().intake.tokenizer.token_bytes, token_ids))

    def stats(self) -> EngineStats:
        now = self._snapshot
        return EngineStats(
            running=now.running,
            waiting=now.waiting + self._taken + self._tracker.num_new,
            total_blocks=now.total_blocks,
            free_blocks=now.free_blocks,
            finished=dict(self._tracker.finished),
            preemptions=now.preemptions,
            steps=now.steps,
            prompt_tokens=now.prompt_tokens,
            cached_tokens=now.cached_tokens,
            generation_tokens=now.generation_tokens,
        )

    def observe(self, observer: Observer) -> None:
        """See `corelm.api.EngineClient`."""
        name = f"the frontend's observer {type(observer).__name__}"
        self._observing.add(name, observer, self._description if self.status == "ready" else None)

    def drain(self) -> None:
        """Refuse new requests; those that run go on."""
        if self.status in ("starting", "ready"):
            self.status = "draining"

    async def failed(self) -> None:
        """Return when the engine is errored."""
        await self._failed.wait()

    async def stop(self) -> None:
        """End what still runs with `EngineStoppedError` and free the executor. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        if self.status != "errored":
            self.status = "stopped"
        self._tracker.fail_all(EngineStoppedError("the server was stopped"))
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
        freed = self._thread.submit(self._free)
        self._thread.close()
        self._tokenizing.close()
        # Waiting must not cancel it: a model that is still loading is freed when it is there.
        done, _ = await asyncio.wait(
            [asyncio.wrap_future(freed)], timeout=SHUTDOWN_S if self._built else LOADING_SHUTDOWN_S
        )
        if not done:
            logger.warning("the executor did not shut down in time")
        elif (error := freed.exception()) is not None:
            logger.error("the executor failed to shut down: %s", describe(error), exc_info=error)
        await asyncio.to_thread(self._observing.close)

    def _build(self, progress: Progress) -> Engine:
        self._built = self._load(progress)
        return self._built

    def _free(self) -> None:
        if self._built is not None:
            self._built.shutdown()

    async def _queue(
        self,
        prepare: Callable[..., Request],
        request_id: str | None,
        choices: int = 1,
        structured: StructuredOutput | None = None,
    ) -> AsyncStream:
        if self._preparing + self._tracker.num_new + self._taken + self._snapshot.queued >= self._max_waiting:
            raise QueueFullError(f"{self._max_waiting} requests wait already; try again later")
        stream = self._tracker.open(request_id or uuid.uuid4().hex, choices)
        prepare = partial(prepare, request_id=stream.request_id, arrival=time.monotonic())
        self._preparing += 1
        try:
            if structured is not None:
                prepare = partial(prepare, grammar=await self._loaded().intake.grammars().compiled(structured))
            request = await self._tokenized(prepare)
            self._check_serving()
        except BaseException:
            self._tracker.discard(stream)
            raise
        finally:
            self._preparing -= 1
        self._tracker.enqueue(stream, request)
        return stream

    async def _tokenized(self, work: Callable[[], T]) -> T:
        future = self._tokenizing.submit(work)
        try:
            async with asyncio.timeout(self._iteration_timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            if future.done() and not future.cancelled():
                raise
            if not future.cancelled():  # it did not only wait for others
                self._give_up_tokenizing()
            raise RequestFailedError("the prompt could not be tokenised within the iteration timeout") from error

    def _give_up_tokenizing(self) -> None:
        """Let another thread tokenise in place of one that hangs; too many of them are a failure of the engine."""
        self._hung_tokenizers += 1
        if self._hung_tokenizers < MAX_HUNG_TOKENIZERS:
            self._tokenizing.replace_thread()
        elif self.failure is None:
            self._fail(EngineDeadError(f"the tokenizer did not return from {MAX_HUNG_TOKENIZERS} calls"))

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise EngineStoppedError("the model is still loading")
        return self._engine

    def _check_serving(self) -> None:
        if self.failure is not None:
            raise EngineDeadError(*self.failure.args) from self.failure.__cause__
        if self.status == "starting":
            raise EngineStoppedError("the model is still loading")
        if self.status != "ready":
            raise EngineStoppedError("the server is shutting down")

    async def _run(self, engine: Engine) -> None:
        try:
            while True:
                self._stats_log.update(self.stats(), time.monotonic())
                if not engine.has_work:
                    await self._tracker.wait(IDLE_CHECK_S)
                    self._stats_log.update(self.stats(), time.monotonic())
                emissions = await self._turn(engine)
                self._tracker.deliver(emissions)
                if not emissions and engine.has_work and not self._snapshot.running:
                    await self._tracker.wait(EMPTY_STEP_PAUSE_S)
        except asyncio.CancelledError:
            if not self._stopped:
                self._fail(EngineDeadError("the engine's loop was cancelled"))
            raise
        except EngineDeadError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - reported to every stream
            dead = EngineDeadError(f"the engine failed: {describe(error)}")
            dead.__cause__ = error
            self._fail(dead)

    async def _turn(self, engine: Engine) -> list[Emission]:
        new, aborted = self._tracker.take()
        self._taken = len(new)
        future = self._thread.submit(partial(_turn, engine, new, aborted))
        try:
            async with asyncio.timeout(self._iteration_timeout_s):
                emissions, self._snapshot = await asyncio.wrap_future(future)
                self._taken = 0
        except TimeoutError as error:
            if future.done():
                raise
            limit = f"{self._iteration_timeout_s:g} s"
            raise EngineDeadError(f"a step took longer than the iteration timeout of {limit}") from error
        return emissions

    def _fail(self, error: EngineDeadError) -> None:
        logger.error("%s", error, exc_info=error.__cause__)
        self.failure = error
        self.status = "errored"
        now = self._snapshot
        self._snapshot = msgspec.structs.replace(now, running=0, waiting=0, queued=0, free_blocks=now.total_blocks)
        self._taken = 0
        self._tracker.fail_all(error)
        self._observing.failed(str(error))
        self._failed.set()


def _turn(engine: Engine, new: list[Request], aborted: list[int]) -> tuple[list[Emission], EngineSnapshot]:
    """One turn, in the engine's thread."""
    engine.abort(aborted)
    refused: list[Emission] = []
    for request in new:
        try:
            engine.add(request)
        except (InvalidRequestError, QueueFullError) as error:
            refused.append((request.number, error))
    if not engine.has_work:
        engine.check_health()
        return refused, engine.snapshot()
    emissions = engine.step()
    return refused + emissions, engine.snapshot()
