"""The observer contract: who is told what the engine does, and where the time of each request went.

Times are seconds of the monotonic clock of the engine's process. A request with several choices is one request: it
runs while any of its choices does.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from corelm.contracts.executor import ExecutorInfo
from corelm.contracts.frontend import ModelCard, RequestOptions

Outcome = Literal["stop", "length", "abort", "error"]
"""How a request ended: its finish reason, or ``error``."""


class ObserverContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an observer's factory is given."""

    settings: Any
    """An instance of the settings model that the plugin registered, or None."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine that has started serves, and with what."""

    model: ModelCard
    executor: ExecutorInfo


class RequestTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a request went. The parts in seconds add up to ``finished - arrival``."""

    arrival: float
    """When it reached the engine."""
    queued: float
    """When it began to wait; until then it was checked and tokenised."""
    scheduled: float | None
    """When it first ran, if ever."""
    first_token: float | None
    """When its first token was there, if ever."""
    finished: float
    waiting_s: float
    """From the arrival until it first ran."""
    prefill_s: float
    """Running without a token yet."""
    decode_s: float
    """Running from the first token on. What a preemption threw away is computed anew within this time."""
    preempted_s: float
    """Waiting to run again."""
    preemptions: int


class RequestQueued(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request began to wait."""

    time: float
    request_id: str
    prompt_tokens: int
    options: RequestOptions


class RequestScheduled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request began to run, or runs again after a preemption."""

    time: float
    request_id: str


class FirstToken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first token of a request was sampled."""

    time: float
    request_id: str


class RequestPreempted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A running request lost its KV blocks and waits again."""

    time: float
    request_id: str
    swapped: bool
    """Whether host memory keeps its keys and values, so that they need not be computed anew."""


class RequestFinished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request ended: its last event."""

    time: float
    request_id: str
    reason: Outcome
    """With several choices, that of the last one to end."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that the prefix cache had."""
    completion_tokens: int
    """Tokens generated for it, those of choices and beams that were not returned included."""
    options: RequestOptions
    timeline: RequestTimeline


class StepFinished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The result of a step was taken in."""

    time: float
    step_id: int
    sequences: int
    """Sequences that it computed."""
    tokens: int
    """Positions that it computed, of prompts and outputs."""
    seconds: float
    """From its submission to its result."""


Event = RequestQueued | RequestScheduled | FirstToken | RequestPreempted | RequestFinished | StepFinished


class Observer:
    """Override what is of interest.

    All calls come from one thread, which the observers of an engine share and nothing else uses, in the order in
    which things happened. An observer that raises is logged and told nothing more. When observers are slower than
    the engine, whole batches of events are left out, so that one which counts what it saw may count too little.
    """

    def engine_started(self, info: EngineInfo) -> None:
        """Requests are served from now on."""

    def events(self, batch: Sequence[Event]) -> None:
        """What happened since the last call, usually in one step."""

    def engine_failed(self, reason: str) -> None:
        """The engine failed. What was running ended with an error; no events tell so."""

    def engine_stopped(self) -> None:
        """The last call, also after a failure. It has two seconds, together with all that was not delivered yet."""
