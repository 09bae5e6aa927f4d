"""What the endpoints of one server share."""

import asyncio
from typing import Any, Protocol, TypeVar

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp
from msgspec.structs import replace

from corelm.api import EngineClient, EngineStoppedError, RequestOptions
from corelm_openai.chat.model_formats import BUILT_IN_FORMATS, FormatFactories, ModelFormats
from corelm_openai.generation.choices import Choices, Job
from corelm_openai.generation.replies import Reply
from corelm_openai.generation.stream import EventStream
from corelm_openai.generation.vocabulary import Vocabulary
from corelm_openai.http.auth import IDENTITY
from corelm_openai.http.decoding import decode
from corelm_openai.http.disconnect import unless, until_disconnect
from corelm_openai.http.exchanges import Work, exchange_of
from corelm_openai.models import find_model
from corelm_openai.settings import OpenAISettings
from corelm_openai.telemetry.logs import log_body

HTTPRequest = Request[Any, Any, State]


class ModelBody(Protocol):
    """A request's body."""

    @property
    def model(self) -> str | None:
        """The name of the model that is meant, if one is named."""


Body = TypeVar("Body", bound=ModelBody)


class Service:
    """The engine, the settings, and the steps of answering a request."""

    def __init__(
        self,
        engine: EngineClient,
        settings: OpenAISettings,
        stop: asyncio.Event,
        factories: FormatFactories = BUILT_IN_FORMATS,
    ) -> None:
        """Raises `PluginError` if the settings name a format that there is not."""
        self.engine = engine
        self.settings = settings
        self.stop = stop
        self.vocabulary = Vocabulary(engine)
        self.formats = ModelFormats(engine, settings, factories)

    async def read(self, request: HTTPRequest, decoder: msgspec.json.Decoder[Body]) -> Body:
        """The body, if the engine serves and knows the model it names, if any.

        Raises `InvalidRequestError`, or what `EngineClient.check_health` raises.
        """
        data = await unless(self.stop.wait(), _stopping(), _read_body(request, self.settings.io_timeout_s))
        exchange = exchange_of(request.scope)
        if self.settings.log_requests_max_chars:
            log_body(exchange, data, self.settings.log_requests_max_chars)
        body = decode(data, decoder)
        self.refuse_when_stopping()
        await self.engine.check_health()
        await self.formats.prepare()
        if body.model is not None:
            exchange.model = find_model(self.engine.model, body.model).id
        return body

    async def answer(self, request: HTTPRequest, job: Job, reply: Reply, *, stream: bool) -> ASGIApp:
        """The response: what `reply` makes of the outputs of `job`, whole or streamed."""
        if stream:
            return EventStream(self.choices(request, job, reply), reply)
        return json_bytes(await self.whole(request, job, reply))

    async def whole(self, request: HTTPRequest, job: Job, reply: Reply) -> bytes:
        """The body of a reply that is not streamed."""
        choices = self.choices(request, job, reply)
        try:
            return await until_disconnect(request.receive, whole_reply(choices, reply))
        finally:
            choices.close()

    def choices(self, request: HTTPRequest, job: Job, reply: Reply) -> Choices:
        """The engine requests of `job`, which have not begun."""
        job = replace(job, options=self.with_tenant(job.options, request))
        choices = Choices(self.engine, job, reply.id)
        exchange_of(request.scope).work = Work(reply.id, choices.request_ids, job.params, lambda: reply.tokens)
        return choices

    def with_tenant(self, options: RequestOptions, request: HTTPRequest) -> RequestOptions:
        """The options, for whom the client named; else for whoever has its API key."""
        if options.tenant is not None:
            return options
        return replace(options, tenant=request.scope.get(IDENTITY))

    def refuse_when_stopping(self) -> None:
        """Raise `EngineStoppedError` once the server shuts down."""
        if self.stop.is_set():
            raise _stopping()


async def whole_reply(choices: Choices, reply: Reply) -> bytes:
    """The body of a reply that is not streamed."""
    outputs = await choices.results()
    if not reply.shows_tokens:
        return msgspec.json.encode(reply.body(outputs))
    await reply.prepare(outputs)
    return await asyncio.to_thread(lambda: msgspec.json.encode(reply.body(outputs)))  # can be long, and take long


def json_response(data: Any) -> ASGIResponse:
    """A response with `data` as JSON."""
    return json_bytes(msgspec.json.encode(data))


def json_bytes(body: bytes) -> ASGIResponse:
    """A response with a body that is JSON."""
    return ASGIResponse(body=body, media_type="application/json")


def _stopping() -> EngineStoppedError:
    return EngineStoppedError("The server is shutting down.")


async def _read_body(request: HTTPRequest, timeout_s: float) -> bytes:
    """The whole body, however long it takes, if every piece comes in time."""
    pieces = request.stream()
    body = bytearray()
    try:
        while True:
            async with asyncio.timeout(timeout_s):
                body += await anext(pieces)
    except StopAsyncIteration:
        return bytes(body)
    except TimeoutError:
        raise HTTPException(
            "The request's body did not arrive in time.", status_code=408, headers={"Connection": "close"}
        ) from None
