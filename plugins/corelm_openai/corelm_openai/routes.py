"""The endpoints."""

import asyncio
from typing import Any, TypeVar

import msgspec
from litestar import Request, get, post, route
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from corelm.api import EngineClient, EngineDeadError, EngineStoppedError
from corelm_openai import chat, completions
from corelm_openai.choices import Choices
from corelm_openai.decoding import decode
from corelm_openai.disconnect import unless, until_disconnect
from corelm_openai.events import EventStream
from corelm_openai.hookspecs import OPEN
from corelm_openai.models import find_model, list_models
from corelm_openai.replies import Reply
from corelm_openai.settings import OpenAISettings
from corelm_openai.vocabulary import Vocabulary

Body = TypeVar("Body", completions.CompletionBody, chat.ChatBody)


def make_routes(engine: EngineClient, settings: OpenAISettings, stop: asyncio.Event) -> list[HTTPRouteHandler]:
    """Every route. Each asks for an API key, if there are any, unless it is marked as open."""
    vocabulary = Vocabulary(engine)

    @route("/health", http_method=["GET", "HEAD"], opt={OPEN: True})
    async def health() -> ASGIApp:
        _refuse_when_stopping(stop)
        try:
            await engine.check_health()
        except EngineDeadError as error:
            raise EngineStoppedError("The engine has failed; the server's log says why.") from error
        return _json({"status": engine.status})

    @get("/v1/models")
    async def models() -> ASGIApp:
        return _json(list_models(engine.model))

    @get("/v1/models/{name:path}")
    async def model(request: Request[Any, Any, State]) -> ASGIApp:
        if not engine.model.names:
            await engine.check_health()
        return _json(find_model(engine.model, request.path_params["name"].removeprefix("/")))

    @post("/v1/completions", status_code=200)
    async def create_completion(request: Request[Any, Any, State]) -> ASGIApp:
        return await generate(request, completions.body_decoder, completions.CompletionReply)

    @post("/v1/chat/completions", status_code=200)
    async def create_chat_completion(request: Request[Any, Any, State]) -> ASGIApp:
        return await generate(request, chat.body_decoder, chat.ChatReply)

    async def generate(
        request: Request[Any, Any, State], decoder: msgspec.json.Decoder[Body], reply_type: type[Reply]
    ) -> ASGIApp:
        data = await unless(stop.wait(), _stopping(), _read_body(request, settings.io_timeout_s))
        body = decode(data, decoder)
        _refuse_when_stopping(stop)
        await engine.check_health()
        find_model(engine.model, body.model)
        job = body.job(settings, request.headers, engine.model.max_model_len)
        reply = reply_type(body.model, job, vocabulary, include_usage=body.include_usage)
        choices = Choices(engine, job, reply.id)
        if body.stream:
            return EventStream(choices, reply)
        try:
            return _response(await until_disconnect(request.receive, _whole(choices, reply)))
        finally:
            choices.close()

    return [health, models, model, create_completion, create_chat_completion]


def _refuse_when_stopping(stop: asyncio.Event) -> None:
    if stop.is_set():
        raise _stopping()


def _stopping() -> EngineStoppedError:
    return EngineStoppedError("The server is shutting down.")


async def _read_body(request: Request[Any, Any, State], timeout_s: float) -> bytes:
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


async def _whole(choices: Choices, reply: Reply) -> bytes:
    """The body of a reply that is not streamed."""
    outputs = await choices.results()
    if not reply.shows_tokens:
        return msgspec.json.encode(reply.body(outputs))
    await reply.prepare(outputs)
    return await asyncio.to_thread(lambda: msgspec.json.encode(reply.body(outputs)))  # can be long, and take long


def _json(data: Any) -> ASGIResponse:
    return _response(msgspec.json.encode(data))


def _response(body: bytes) -> ASGIResponse:
    return ASGIResponse(body=body, media_type="application/json")
