"""The frontend contract: how the outside talks to the engine."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from corelm.contracts.tokenizer import Chat
from corelm.errors import InvalidRequestError
from corelm.limits import check_limits
from corelm.outputs import Embedding, EngineStats, RequestOutput
from corelm.sampling import SamplingParams

if TYPE_CHECKING:
    from corelm.contracts.observer import Observer

EngineStatus = Literal["starting", "ready", "draining", "stopped", "errored"]
Prompt = str | Sequence[int] | Chat
MAX_NAME_LENGTH = 512


class FrontendContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a frontend's factory is given."""

    settings: Any
    """An instance of the settings model that the plugin registered, or None."""


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine and its policy know of a request besides its tokens. Raises `InvalidRequestError`."""

    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    """Smaller is more urgent."""
    tenant: str | None = None
    """Who the request is for."""
    session: str | None = None
    """The conversation it belongs to."""
    deadline_s: Annotated[float, Meta(ge=0.0, le=1e9)] | None = None
    """Seconds after its arrival within which the client wants it finished: a wish, for policies."""
    cache_salt: str | None = None
    """Prompts share cached prefixes only with prompts of the same salt."""
    prefix_cache: bool = True
    """Whether the request may use what the prefix cache holds, and leave its own prompt there."""

    def __post_init__(self) -> None:
        check_limits(self)
        for name in ("tenant", "session", "cache_salt"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and len(value) <= MAX_NAME_LENGTH):
                raise InvalidRequestError(
                    f"{name} must be a string of at most {MAX_NAME_LENGTH} characters", param=name
                )


class ResultStream(Protocol):
    """The outputs of one request. Cancelling a task that waits on it aborts the request."""

    request_id: str

    def __aiter__(self) -> AsyncIterator[RequestOutput]: ...

    async def __anext__(self) -> RequestOutput:
        """The next output: all that came since the last one for one of the choices, merged.

        Raises the request's error.
        """

    async def result(self) -> RequestOutput:
        """`results` of a request with one choice."""

    async def results(self) -> list[RequestOutput]:
        """Wait for the end and return everything not read yet, one output for each choice in order."""

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
    embedding_size: int | None = None
    """Numbers in an embedding; None until the model is loaded, and if the engine makes none."""


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
        options: RequestOptions = RequestOptions(),
    ) -> ResultStream:
        """Check and queue a request.

        Raises `InvalidRequestError` (the request is wrong or can never fit), `DuplicateRequestError`,
        `QueueFullError` (as many wait as may), `EngineStoppedError` (loading, draining or stopped) or
        `EngineDeadError`.
        """

    async def embed(
        self,
        prompt: Prompt,
        *,
        request_id: str | None = None,
        options: RequestOptions = RequestOptions(),
        truncate_prompt_tokens: int | None = None,
    ) -> Embedding:
        """What the model makes of a prompt's last token, as a vector of length 1.

        `truncate_prompt_tokens` is that of `SamplingParams`. Raises what `generate` does, and the request's error.
        Cancelling a task that waits for it aborts the request.
        """

    def abort(self, request_id: str) -> None:
        """End a request by its id. Never waits; unknown and finished ids are ignored."""

    async def tokenize(self, prompt: Prompt, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids that `generate` would make of a prompt. A chat has no other special tokens than its template's.

        Raises `InvalidRequestError` if it is longer than the context.
        """

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, special ones included.

        Raises `InvalidRequestError` for one outside the vocabulary, and for more than the context holds.
        """

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes]:
        """What each token stands for: see `corelm.api.Tokenizer.token_bytes`."""

    async def check_health(self) -> None:
        """Return if requests are being served; else raise as `generate` would."""

    def stats(self) -> EngineStats: ...

    def observe(self, observer: "Observer") -> None:
        """Tell `observer` what happens from now on, as the observers of plugins are told: see `corelm.api.Observer`.

        If requests are served already, `engine_started` comes at once. Does nothing once the engine has stopped.
        """


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
