"""``POST /v1/completions``."""

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm_openai.completions.body import CompletionBody
from corelm_openai.completions.reply import CompletionReply
from corelm_openai.service import HTTPRequest, Service

_decoder = msgspec.json.Decoder(CompletionBody)


def completion_routes(service: Service) -> list[HTTPRouteHandler]:
    """The endpoint."""

    @post("/v1/completions", status_code=200)
    async def create_completion(request: HTTPRequest) -> ASGIApp:
        body = await service.read(request, _decoder)
        job = body.job(service, request.headers)
        reply = CompletionReply(body.model, job, service.vocabulary, include_usage=body.include_usage)
        return await service.answer(request, job, reply, stream=bool(body.stream))

    return [create_completion]
