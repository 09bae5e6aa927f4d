"""One line of JSON for each request that ended: what it was, and where its time went."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from corelm.api import ConfigurationError, Event, Observer, ObserverContext, Register, RequestFinished, hookimpl

corelm_api = ((0, 2), (1, 0))


class RequestLogSettings(BaseModel):
    """Settings of the request log."""

    path: Path = Field(description="File to which a line is added for each request that ended.")


class RequestLog(Observer):
    """Appends to a file. If that cannot be written any more, corelm says so and goes on without the log."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigurationError` if the file cannot be written."""
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"request_log.path: cannot write {path}: {error.strerror}") from error

    def events(self, batch: Sequence[Event]) -> None:
        for event in batch:
            if isinstance(event, RequestFinished):
                self._file.write(json.dumps(line(event)) + "\n")
        self._file.flush()

    def engine_stopped(self) -> None:
        self._file.close()


def line(event: RequestFinished) -> dict[str, str | int | float | None]:
    """What is written about a request. `time` is that of the clock on the wall, in Unix seconds."""
    timeline = event.timeline
    return {
        "time": round(time.time(), 3),
        "request_id": event.request_id,
        "tenant": event.options.tenant,
        "reason": event.reason,
        "prompt_tokens": event.prompt_tokens,
        "cached_tokens": event.cached_tokens,
        "completion_tokens": event.completion_tokens,
        "total_s": round(timeline.finished - timeline.arrival, 6),
        "waiting_s": round(timeline.waiting_s, 6),
        "prefill_s": round(timeline.prefill_s, 6),
        "decode_s": round(timeline.decode_s, 6),
        "preempted_s": round(timeline.preempted_s, 6),
        "preemptions": timeline.preemptions,
    }


@hookimpl
def corelm_register_observers(register: Register[ObserverContext, Observer]) -> None:
    register(
        "request_log",
        lambda context: RequestLog(context.settings.path),
        settings=RequestLogSettings,
        summary="a line of JSON for each request that ended",
    )
