"""Tells observers what happens, in a thread of their own."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from functools import partial

from corelm.contracts.observer import EngineInfo, Event, Observer
from corelm.engine.worker import Worker

logger = logging.getLogger("corelm.engine")

MAX_WAITING_BATCHES = 1000
CLOSE_S = 2.0
"""How long observers may take for what they were not told yet when the engine stops."""


class Observing:
    """The observers of one engine. Any thread may call it; only `close` waits for an observer.

    When too many batches wait, new ones are dropped until all that wait were taken: observers see one gap, not many.
    """

    def __init__(
        self, observers: Sequence[tuple[str, Observer]] = (), *, max_waiting: int = MAX_WAITING_BATCHES
    ) -> None:
        """Each observer comes with what the log calls it, which names its plugin."""
        self.active = bool(observers)
        """Whether anybody listens; events need not be made otherwise."""
        self._observers = tuple(observers)
        self._max_waiting = max_waiting
        self._worker = Worker("corelm-observers")
        self._lock = threading.Lock()
        self._closed = False
        self._joining = 0
        """Observers that were added and that the thread has not taken in yet."""
        self._waiting = 0
        self._dropped = 0

    def add(self, name: str, observer: Observer, info: EngineInfo | None = None) -> None:
        """Tell one more observer what happens from now on; first of all `info`, if the engine serves already."""
        with self._lock:
            if not self._closed:
                self.active = True
                self._joining += 1
                self._worker.submit(partial(self._join, (name, observer), info))

    def started(self, info: EngineInfo) -> None:
        """The engine serves requests."""
        self._submit(lambda observer: observer.engine_started(info))

    def failed(self, reason: str) -> None:
        """The engine failed."""
        self._submit(lambda observer: observer.engine_failed(reason))

    def publish(self, batch: Sequence[Event]) -> None:
        """Events happened."""
        if not batch:
            return
        with self._lock:
            if not self.active:
                return
            if not self._dropped and self._waiting < self._max_waiting:
                self._waiting += 1
                self._worker.submit(partial(self._deliver, tuple(batch)))
                return
            self._dropped += 1
            first = self._dropped == 1
        if first:
            logger.warning("observers are too slow: events are dropped until they have caught up")

    def close(self) -> None:
        """The engine stopped. Returns when the observers know it, or after `CLOSE_S`."""
        with self._lock:
            active, self.active, self._closed = self.active, False, True
            if active:
                told = self._worker.submit(partial(self._tell, lambda observer: observer.engine_stopped()))
            self._worker.close()
        if active and futures.wait([told], CLOSE_S).not_done:
            with self._lock:
                self._observers = ()
            logger.warning("observers are too slow: they were not told everything before the engine stopped")

    def _submit(self, news: Callable[[Observer], None]) -> None:
        with self._lock:
            if self.active:
                self._worker.submit(partial(self._tell, news))

    def _deliver(self, batch: Sequence[Event]) -> None:
        self._tell(lambda observer: observer.events(batch))
        with self._lock:
            self._waiting -= 1
            dropped = 0 if self._waiting else self._dropped
            self._dropped -= dropped
        if dropped:
            logger.warning("observers have caught up; batches of events that were dropped: %d", dropped)

    def _join(self, entry: tuple[str, Observer], info: EngineInfo | None) -> None:
        with self._lock:
            self._joining -= 1
            self._observers += (entry,)
        if info is not None:
            self._tell_one(entry, lambda observer: observer.engine_started(info))

    def _tell(self, news: Callable[[Observer], None]) -> None:
        for entry in self._observers:
            self._tell_one(entry, news)

    def _tell_one(self, entry: tuple[str, Observer], news: Callable[[Observer], None]) -> None:
        try:
            news(entry[1])
        except BaseException:  # extensions in other languages raise more than Exception; this thread is ours
            self._switch_off(entry)
            logger.exception("%s failed and is switched off", entry[0])

    def _switch_off(self, entry: tuple[str, Observer]) -> None:
        with self._lock:
            self._observers = tuple(other for other in self._observers if other is not entry)
            self.active = self.active and bool(self._observers or self._joining)
