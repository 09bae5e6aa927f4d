"""The frontend contract: how the outside talks to the engine."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from corelm.contracts.tokenizer import Chat
from corelm.outputs import EngineStats, RequestOutput
from corelm.sampling import SamplingParams

EngineStatus = Literal["starting", "ready", "draining", "stopped", "errored"]
Prompt = str | Sequence[int] | Chat


class FrontendContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a frontend's factory is given."""

    settings: Any
    """An instance of the settings model that the plugin registered, or None."""


class ResultStream(Protocol):
    """The outputs of one request. Cancelling a task that waits on it aborts the request."""

    request_id: str

    def __aiter__(self) -> AsyncIterator[RequestOutput]: ...

    async def __anext__(self) -> RequestOutput:
        """The next output; all that came since the last one, merged. Raises the request's error."""

    async def result(self) -> RequestOutput:
        """Wait for the end and return everything not read yet, as one output."""

    def abort(self) -> None:
        """End the request. Never waits; does nothing once the request has ended."""


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is served."""

    names: tuple[str, ...]
    """Every name the model answers to, the main one first; none until the model is loaded, unless they were set."""
    created: int
    """Unix time at which serving began."""
    max_model_len: int | None
    """Longest prompt and output together, in tokens; None until the model is loaded."""


class EngineClient(Protocol):
    """The engine as a frontend sees it. Nothing here needs the engine to be in this process."""

    @property
    def status(self) -> EngineStatus: ...
    @property
    def model(self) -> ModelCard: ...

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> ResultStream:
        """Check and queue a request.

        Raises `InvalidRequestError` (the request is wrong or can never fit), `DuplicateRequestError`,
        `EngineStoppedError` (loading, draining or stopped) or `EngineDeadError`.
        """

    def abort(self, request_id: str) -> None:
        """End a request by its id. Never waits; unknown and finished ids are ignored."""

    async def check_health(self) -> None:
        """Return if requests are being served; else raise as `generate` would."""

    def stats(self) -> EngineStats: ...


class Frontend(ABC):
    """Serves requests from the outside."""

    url: str | None = None
    """Where clients reach it, once it listens. Shown at start-up."""

    @abstractmethod
    async def serve(self, engine: EngineClient, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then take nothing new, let what runs end, and return.

        Called before the model is loaded: open the port at once and report not ready until
        ``engine.status`` is ``ready``. Raises `StartupError` if it cannot listen. When draining takes too long
        the engine ends the streams with an error, so that waiting for them is bounded.
        """
