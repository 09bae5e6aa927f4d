"""Threads beside the event loop."""

import queue
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from corelm.errors import describe

T = TypeVar("T")


class Worker:
    """Runs calls in daemon threads, which start with the first call.

    Unlike a ThreadPoolExecutor's, these threads do not keep the process alive when a call never returns, and
    nothing that a call raises can cancel, end or escape whoever waits for it.
    """

    def __init__(self, name: str, threads: int = 1, *, stack_bytes: int = 0) -> None:
        """`stack_bytes` is the size of each thread's stack, 0 for the system's."""
        self._name = name
        self._threads = threads
        self._stack_bytes = stack_bytes
        self._calls: queue.SimpleQueue[tuple[futures.Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._started = False
        self._closed = False

    def submit(self, call: Callable[[], T]) -> "futures.Future[T]":
        """Queue a call; its result or exception comes with the future. Raises `RuntimeError` after `close`."""
        if self._closed:
            raise RuntimeError(f"{self._name} is closed")
        if not self._started:
            self._started = True
            for _ in range(self._threads):
                self._start_thread()
        future: futures.Future[T] = futures.Future()
        self._calls.put((future, call))
        return future

    def replace_thread(self) -> None:
        """Start another thread in place of one whose call does not return."""
        self._threads += 1
        self._start_thread()

    def close(self) -> None:
        """End the threads after the calls that were queued."""
        if not self._closed:
            self._closed = True
            for _ in range(self._threads):
                self._calls.put(None)

    def _start_thread(self) -> None:
        usual = threading.stack_size(self._stack_bytes)
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        finally:
            threading.stack_size(usual)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - goes to whoever waits
                future.set_exception(_deliverable(error))
            else:
                future.set_result(result)
            del item, future, call


def _deliverable(error: BaseException) -> Exception:
    """What a future can carry to the event loop and be taken for nothing but an error there."""
    control_flow = StopIteration | StopAsyncIteration | futures.CancelledError
    if isinstance(error, Exception) and not isinstance(error, control_flow):
        return error
    wrapped = RuntimeError(describe(error))
    wrapped.__cause__ = error
    return wrapped
