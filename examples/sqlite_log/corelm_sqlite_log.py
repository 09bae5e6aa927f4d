"""A row in an SQLite database for each request that ended: what it was, and where its time went."""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from corelm.api import ConfigurationError, Event, Observer, ObserverContext, Register, RequestFinished, hookimpl

corelm_api = ((0, 2), (1, 0))

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    finished_at REAL NOT NULL,  -- Unix time in seconds
    request_id TEXT NOT NULL,
    tenant TEXT,
    reason TEXT NOT NULL,  -- stop, length, abort or error
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    total_s REAL NOT NULL,  -- the sum of the next four
    waiting_s REAL NOT NULL,
    prefill_s REAL NOT NULL,
    decode_s REAL NOT NULL,
    preempted_s REAL NOT NULL,
    preemptions INTEGER NOT NULL
)
"""
INSERT = f"INSERT INTO requests VALUES ({', '.join('?' * 13)})"

Row = tuple[float | int | str | None, ...]


class SqliteLogSettings(BaseModel):
    """Settings of the SQLite log."""

    path: Path = Field(description="Database to which a row is added for each request that ended.")


class SqliteLog(Observer):
    """One transaction for each batch of events, on the observers' thread: the engine never waits for the disk.

    With write-ahead logging others can read the database meanwhile.
    """

    def __init__(self, path: Path) -> None:
        """Raises `ConfigurationError` if the database cannot be written."""
        try:
            # Opened here, where an error ends the start; from then on only the observers' thread uses it.
            self._database = sqlite3.connect(path, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute(SCHEMA)
        except sqlite3.Error as error:
            raise ConfigurationError(f"sqlite_log.path: cannot use {path}: {error}") from error

    def events(self, batch: Sequence[Event]) -> None:
        rows = [row(event) for event in batch if isinstance(event, RequestFinished)]
        if rows:
            with self._database:
                self._database.executemany(INSERT, rows)

    def engine_stopped(self) -> None:
        self._database.close()


def row(event: RequestFinished) -> Row:
    """The values of the table's columns."""
    timeline = event.timeline
    return (
        time.time(),
        event.request_id,
        event.options.tenant,
        event.reason,
        event.prompt_tokens,
        event.cached_tokens,
        event.completion_tokens,
        timeline.finished - timeline.arrival,
        timeline.waiting_s,
        timeline.prefill_s,
        timeline.decode_s,
        timeline.preempted_s,
        timeline.preemptions,
    )


@hookimpl
def corelm_register_observers(register: Register[ObserverContext, Observer]) -> None:
    register(
        "sqlite_log",
        lambda context: SqliteLog(context.settings.path),
        settings=SqliteLogSettings,
        summary="a row in an SQLite database for each request that ended",
    )
