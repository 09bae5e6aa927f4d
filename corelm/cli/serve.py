"""Running an engine and a frontend together, from the first connection to a clean end."""

import asyncio
from collections.abc import Callable

from corelm.contracts.executor import Progress
from corelm.contracts.frontend import Frontend
from corelm.engine.async_engine import AsyncEngine
from corelm.errors import describe

GRACE_S = 2.0
"""How long the frontend may take to end when there is nothing left to wait for."""
FAILURE_S = 5.0
"""How long the frontend may take to tell its clients that the engine failed."""
STOP_S = 6.0
"""How long the engine may take to stop; it bounds its executor itself."""


class Server:
    """Serves until `shutdown` is set, the frontend returns, or the engine fails (if `exit_on_engine_error`)."""

    def __init__(
        self, engine: AsyncEngine, frontend: Frontend, *, drain_timeout_s: float, exit_on_engine_error: bool
    ) -> None:
        self.shutdown = asyncio.Event()
        self._engine = engine
        self._frontend = frontend
        self._drain_timeout_s = drain_timeout_s
        self._exit_on_engine_error = exit_on_engine_error
        self._stop = asyncio.Event()

    async def run(self, progress: Progress, ready: Callable[[], None]) -> int:
        """Serve. Returns the exit code; calls `ready` once the model is loaded.

        The frontend starts first, so that the port is open while the model loads. Raises what the frontend or
        the loading raised.
        """
        serving = asyncio.create_task(self._serve(), name="corelm-frontend")
        loading = asyncio.create_task(self._engine.start(progress), name="corelm-loading")
        asked = asyncio.create_task(self.shutdown.wait())
        failed = asyncio.create_task(self._engine.failed())
        try:
            await _first(serving, loading, asked)
            if not serving.done() and not asked.done():
                loading.result()
                ready()
                await _first(serving, asked, *([failed] if self._exit_on_engine_error else []))
        finally:
            await self._end(serving, loading)
            for task in (serving, loading, asked, failed):
                task.cancel()
        if serving.done() and not serving.cancelled():
            serving.result()
        return 0 if self._engine.failure is None else 1

    async def _serve(self) -> None:
        try:
            await self._frontend.serve(self._engine, self._stop)
        except (SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError(f"the frontend ended with {describe(error)}") from error

    async def _end(self, serving: "asyncio.Task[None]", loading: "asyncio.Task[None]") -> None:
        """Let running requests end, then end them with an error. Always returns in bounded time."""
        self._engine.drain()
        self._stop.set()
        await asyncio.wait([serving], timeout=self._patience(loading))
        await asyncio.wait([asyncio.create_task(self._engine.stop())], timeout=STOP_S)
        await asyncio.wait([serving], timeout=GRACE_S)

    def _patience(self, loading: "asyncio.Task[None]") -> float:
        if not loading.done() or loading.exception() is not None:
            return GRACE_S
        return self._drain_timeout_s if self._engine.failure is None else FAILURE_S


async def _first(*tasks: "asyncio.Task[None] | asyncio.Task[bool]") -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
