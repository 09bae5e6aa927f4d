"""The engine's own thread."""

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EngineThread:
    """Runs calls one after the other in one daemon thread.

    Unlike a ThreadPoolExecutor's, this thread does not keep the process alive when a call never returns.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="corelm-engine", daemon=True).start()

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Queue a call; its result or exception comes with the future."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """End the thread after the calls that were queued."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - goes to whoever waits
                future.set_exception(error)
            else:
                # Whoever waited may have given up meanwhile.
                with contextlib.suppress(RuntimeError):
                    future.set_result(result)
            del item, future, call
